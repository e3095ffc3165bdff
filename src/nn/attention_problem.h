// T5's attention between tensors that are laid out by head: forward and backward of some of its queries.
// Shapes: B batch, H heads, Q queries, R of them in a chunk, K keys, D head_dim.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

#include "ops/attention_weights.h"

namespace trainer {

// Adds a product to a sum: in fp32, but a single product stays as it is.
void add_to(at::Tensor& sum, const at::Tensor& product);

// The gradients of chunk after chunk.
struct AttentionSums {
  at::Tensor k, v;            // [B * H, K, D]; undefined before the first chunk
  at::Tensor bias;            // fp32 [buckets, H]; undefined: not needed
  bool bias_is_empty = true;  // what is in `bias` is overwritten
};

struct AttentionProblem {
  at::Tensor q, k, v;                    // [B * H, rows, D] in the type of products
  at::Tensor bias_weight, bias_buckets;  // [buckets, H], undefined: no bias; int64 [Q + K - 1]
  std::optional<at::Tensor> key_lengths, row_keys;
  int64_t batch = 0;
  bool causal = false;
  WeightsOptions options;
  int64_t chunk_bytes = 32 << 20;  // of attention weights, counted in fp32

  int64_t queries() const { return q.size(1); }
  int64_t keys() const { return k.size(1); }
  int64_t rows_per_chunk() const;

  // Returns the rows first .. first + rows - 1 of the result, [B * H, R, D].
  at::Tensor forward(int64_t first, int64_t rows) const;
  // Takes the gradient of the whole result, [B * H, Q, D]. Returns that of q for the chunk, [B * H, R, D],
  // and adds to the others.
  at::Tensor backward(const at::Tensor& gradient, int64_t first, int64_t rows, AttentionSums& sums) const;

 private:
  at::Tensor chunk_buckets(int64_t first, int64_t rows) const;
  std::optional<at::Tensor> chunk_row_keys(int64_t first, int64_t rows) const;
  std::tuple<at::Tensor, at::Tensor> weights(int64_t first, int64_t rows, bool both) const;
};

}  // namespace trainer
