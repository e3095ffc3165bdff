// Attention that does not keep the [heads, queries, keys] matrix for backward.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"
#include "trainer/weights/module.h"

#include "nn/remade_heads.h"

namespace trainer {

// T5's relative position bias: a learned number for each head and bucket of distances (Raffel et al. 2019;
// transformers, T5Attention._relative_position_bucket).
class RelativeBias : public Module {
 public:
  RelativeBias(int64_t num_buckets, int64_t max_distance, int64_t num_heads, bool bidirectional);

  // Returns the bucket of each distance key - query, from -(queries - 1) - offset to keys - 1 - offset: int64
  // [queries + keys - 1]. `offset` is the position of the first query (for generation).
  at::Tensor buckets(int64_t queries, int64_t keys, int64_t offset, at::Device device) const;
  // Returns the bias [1, heads, queries, keys] in `type`; differentiable in the weight.
  at::Tensor bias(int64_t queries, int64_t keys, int64_t offset, at::ScalarType type) const;
  // Returns the buckets of distances -max_distance to max_distance: those beyond have that of the ends.
  at::Tensor near_buckets(at::Device device) const;
  int64_t max_distance() const { return max_distance_; }

  Parameter weight;  // [num_buckets, num_heads]

 private:
  int64_t bucket(int64_t distance) const;
  // Returns the buckets of `count` distances from `first` on, on the CPU.
  at::Tensor range(int64_t first, int64_t count) const;
  int64_t num_buckets_, max_distance_;
  bool bidirectional_;
  // The buckets of distances -n to n - 1, kept on the GPU that was used last: else the host would wait for a
  // copy in each batch.
  // The last one reaches furthest. Shorter ones stay, because recorded work may read them.
  mutable std::vector<at::Tensor> on_gpu_;
};

struct AttentionInputs {
  at::Tensor q;  // [batch, heads, queries, head_dim]
  at::Tensor k;  // [batch, kv_heads, keys, head_dim]; heads is a multiple of kv_heads
  at::Tensor v;  // [batch, kv_heads, keys, head_dim]
  double scale = 1.0;
  bool causal = false;
  at::Tensor mask;  // additive, broadcastable to [batch, heads, queries, keys], in q's type; undefined: none.
                    // For SDPA.
  bool free_order = false;                // on a GPU: the gradients' sums may be in another order every time
  std::shared_ptr<RemadeHeads> remade{};  // makes q and k again for backward; null: they are kept
};

// Returns the additive mask [queries, keys] of causal attention with a sliding window: 0 for the `window`
// positions that a query sees (itself included), -inf elsewhere. The queries are the last positions of the
// keys (Child et al. 2019; transformers, masking_utils.py, sliding_window_overlay).
at::Tensor sliding_window_mask(int64_t queries, int64_t keys, int64_t window,
                               const at::TensorOptions& options);

// LibTorch's scaled dot product attention. Returns [batch, heads, queries, head_dim].
at::Tensor attention(const AttentionInputs& inputs);

// Sequences that are packed one after the other in one row.
struct Sequences {
  at::Tensor starts;             // [sequences + 1] int32 on the row's device: start of each, and the end
  std::vector<int64_t> lengths;  // tokens of each sequence, in the same order; empty: not on the host
  int64_t longest = 0;           // no sequence is longer
};

// Causal attention of each sequence to itself. q, k and v have batch 1; there is no mask. `window` is the
// number of positions that a position sees, itself included; 0: all positions up to it. Returns [1, heads,
// queries, head_dim]. On the CPU short sequences are computed with built-in products, where these are used,
// and for each other one LibTorch's fused operator is called. On a GPU sequences of one length are attended
// to as padded rows are; others by one call of FlashAttention, or, where packs_in_one_kernel() is false, one
// by one.
at::Tensor packed_attention(const AttentionInputs& inputs, const Sequences& sequences, int64_t window);

// Returns whether packed_attention() is one kernel on a GPU: FlashAttention, for this type and head_dim.
bool packs_in_one_kernel(at::ScalarType type, int64_t head_dim);

// The arguments of attention_recomputed() that replace a mask.
struct BiasAndDropout {
  at::Tensor bias_weight;   // [num_buckets, heads] in q's type; undefined: no bias
  at::Tensor bias_buckets;  // RelativeBias::buckets of these queries and keys
  at::Tensor key_lengths;   // int64 [batch]: keys from this index on are padding; undefined: no padding
  at::Tensor row_keys;      // int64 [batch, queries]: dropout keys of the queries
  uint64_t key = 0;         // dropout key of this layer and step
  double p = 0.0;           // dropout of the attention weights
  int64_t chunk_bytes = int64_t{256} << 20;  // on a GPU: attention_chunk_bytes()
};

// Returns the size of a chunk of attention weights on a GPU, counted in fp32: 256 MiB, and less under a
// memory limit, down to 32 MiB. Fewer chunks need fewer launches. A chunk takes up to 1.5 times that in bf16
// and 3 times in fp32.
int64_t attention_chunk_bytes(std::optional<int64_t> limit);

// Attention with dropout on the attention weights and a bias that may be trained. Works through the queries
// in chunks and recomputes the attention weights in backward; on the CPU with built-in products, where these
// are used and samples are short. Returns what attention() returns.
at::Tensor attention_recomputed(const AttentionInputs& inputs, const BiasAndDropout& extra);

// Rows as projections give them. Of packed samples, whose batch is 1, the groups in which they attend: each
// query to the keys of its own sample.
struct PackedAttentionInputs {
  at::Tensor q;     // [batch, query tokens, heads * head_dim]
  at::Tensor k, v;  // [batch, key tokens, heads * head_dim]
  int64_t heads = 0;
  double scale = 1.0;
  bool causal = false;
  std::shared_ptr<const std::vector<AttentionGroup>> groups;
};

// The same for packed samples, one group after another, or sample by sample with built-in products. Of
// `extra`, bias_buckets are those of the longest group, row_keys those of the packed queries, int64 [1,
// tokens], and key_lengths are not used: the groups have them. Returns [1, query tokens, heads *
// head_dim].
at::Tensor packed_attention_recomputed(const PackedAttentionInputs& inputs, const BiasAndDropout& extra);

// Where packed samples begin in the row of their queries and in that of their keys: int32 [samples + 1], with
// the end. Undefined: each row of the batch is a sample.
struct SampleStarts {
  at::Tensor queries, keys;
};

// The same in one kernel (src/ops/t5_attention.h), where takes_t5_attention(), of packed samples or of the
// rows of a batch: no matrix of weights exists, and nothing moves. `groups` are not used. Of `extra`,
// bias_buckets are RelativeBias::near_buckets(), key_lengths those of a batch that is not packed, and
// chunk_bytes is not used. Returns [batch, query tokens, heads * head_dim].
at::Tensor attention_in_one_kernel(const PackedAttentionInputs& inputs, const BiasAndDropout& extra,
                                   const SampleStarts& starts);

}  // namespace trainer
