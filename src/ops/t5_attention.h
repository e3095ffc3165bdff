// T5's attention on a GPU from Ampere on: scores, bias by distance, softmax, dropout and both products in one
// kernel, and two for the gradients. A matrix [queries, keys] never exists: memory grows with the length.
// Samples are rows of a batch or packed into one row.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Shapes: B batch, H heads, Q queries, K keys, D head_dim.
struct T5AttentionInputs {
  at::Tensor q, k, v;       // bf16 [B, H, rows, D], of any strides
  at::Tensor bias_weight;   // bf16 [buckets, H]; undefined: no bias
  at::Tensor bias_buckets;  // int64 [2 reach + 1], of distances key - query from -reach to reach; those
                            // beyond have that of the ends
  at::Tensor query_starts;  // int32 [samples + 1]: where packed samples begin in the row (B is 1), and the
  at::Tensor key_starts;    // end; undefined: each row of the batch is a sample
  at::Tensor key_lengths;   // int64 [samples]: keys from this index on are padding; undefined: none are
  at::Tensor row_keys;      // int64 [B, Q]: dropout's, for p > 0
  bool causal = false;      // a query sees the keys up to it, where the last ones of both belong together
  double scale = 1.0;
  int64_t dropout_key = 0;
  double p = 0.0;  // dropout of the weights

  // What observers see.
  std::vector<at::Tensor> tensors() const {
    return {q, k, v, bias_weight, query_starts, key_starts, key_lengths, row_keys};
  }
};

struct T5AttentionGradients {
  at::Tensor q, k, v, bias;  // bias: fp32 [buckets, H]; undefined if not needed

  std::vector<at::Tensor> tensors() const { return {q, k, v, bias}; }
};

// Returns whether the functions below take heads of this size in this type there.
bool takes_t5_attention(c10::Device device, at::ScalarType type, int64_t head_dim);

// The furthest distance that a bias may tell from others.
inline constexpr int64_t kFurthestBias = 256;

// Returns the result [B, H, Q, D], laid out as [B, Q, H, D], and what backward needs of each query's sum:
// fp32 [H, B Q]. Weights are in fp32, and rounded to bf16 once, for the product with v. Which weights dropout
// keeps is what attention_weights() says.
std::tuple<at::Tensor, at::Tensor> t5_attention(const T5AttentionInputs& in);

// g, out: the gradient of the result, and the result. Each sum has one order.
T5AttentionGradients t5_attention_backward(const T5AttentionInputs& in, const at::Tensor& g,
                                           const at::Tensor& out, const at::Tensor& lse, bool needs_bias);

}  // namespace trainer
