// Attention without a kept [heads, queries, keys] matrix.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/module.h"

namespace trainer {

// T5's relative position bias: a learnt number for each head and bucket of distances (Raffel et al. 2019;
// transformers, T5Attention._relative_position_bucket).
class RelativeBias : public Module {
 public:
  RelativeBias(int64_t num_buckets, int64_t max_distance, int64_t num_heads, bool bidirectional);

  // Buckets of the distances key - query from -(queries - 1) - offset to keys - 1 - offset: int64 [queries +
  // keys - 1]. `offset`: the position of the first query (generation).
  at::Tensor buckets(int64_t queries, int64_t keys, int64_t offset, at::Device device) const;
  // [1, heads, queries, keys] in `type`; differentiable in the weight.
  at::Tensor bias(int64_t queries, int64_t keys, int64_t offset, at::ScalarType type) const;

  Parameter weight;  // [num_buckets, num_heads]

 private:
  int64_t bucket(int64_t distance) const;
  int64_t num_buckets_, max_distance_;
  bool bidirectional_;
};

struct AttentionInputs {
  at::Tensor q;  // [batch, heads, queries, head_dim]
  at::Tensor k;  // [batch, kv_heads, keys, head_dim]; heads is a multiple of kv_heads
  at::Tensor v;  // [batch, kv_heads, keys, head_dim]
  double scale = 1.0;
  bool causal = false;
  at::Tensor mask;  // additive, broadcastable to [batch, heads, queries, keys], in q's type; undefined: none.
                    // For SDPA.
};

// Additive mask [queries, keys] of causal attention in which a position sees `window` positions, itself among
// them: 0 there, -inf elsewhere. The queries are the last of the keys (Child et al. 2019; transformers,
// masking_utils.py, sliding_window_overlay).
at::Tensor sliding_window_mask(int64_t queries, int64_t keys, int64_t window,
                               const at::TensorOptions& options);

// [batch, heads, queries, head_dim]; LibTorch's scaled dot product attention.
at::Tensor attention(const AttentionInputs& inputs);

// Sequences that lie one behind the other in one row.
struct Sequences {
  at::Tensor starts;             // [sequences + 1] int32 on the row's device: where each begins, and the end
  std::vector<int64_t> lengths;  // of each, in the same order
};

// Causal attention of each sequence to itself: q, k, v have batch 1 and no mask. `window`: positions that a
// position sees, itself among them; 0: all before it. On the CPU by LibTorch's fused operator for each
// sequence; on a GPU one call of FlashAttention for bf16, else an operator a sequence.
at::Tensor packed_attention(const AttentionInputs& inputs, const Sequences& sequences, int64_t window);

// What the recomputing attention needs in place of a mask.
struct BiasAndDropout {
  at::Tensor bias_weight;   // [num_buckets, heads] in q's type; undefined: no bias
  at::Tensor bias_buckets;  // RelativeBias::buckets of these queries and keys
  at::Tensor key_lengths;   // int64 [batch]: keys from there on are padding; undefined: none is
  at::Tensor row_keys;      // int64 [batch, queries]: dropout keys of the queries
  uint64_t key = 0;         // dropout key of this layer and step
  double p = 0.0;           // dropout of the attention weights
};

// The same with dropout on the weights and a bias that may be trained: works through the queries in chunks
// and makes the weights again in backward.
at::Tensor attention_recomputed(const AttentionInputs& inputs, const BiasAndDropout& extra);

}  // namespace trainer
