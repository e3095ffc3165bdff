// Rotary position embedding (Su et al. 2021) in the rotate-half form of Llama and Qwen. The first
// dimensions of a head are rotated, all of them in most families.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/norm.h"
#include "nn/rope.h"

namespace trainer {

class Rotary {
 public:
  explicit Rotary(const RopeParameters& parameters);

  // Broadcastable to [batch, heads, seq, rotary_dim / 2].
  struct Tables {
    at::Tensor cos, sin;
  };
  // Returns the tables for these positions, int64 [seq] or [batch, seq]; computed in fp32, cast to the type
  // of `options`. `lengths` are the current lengths of the batch's sequences, without padding. If the
  // positions are one row and there are several lengths, the sequences are packed in that row. A
  // sequence that is long for the embedding's type has frequencies of its own (long_for_rope).
  Tables tables(const at::Tensor& positions, const std::vector<int64_t>& lengths,
                const at::TensorOptions& options) const;

  // Returns the queries and keys rotated, [batch, heads, seq, head_dim], laid out in memory as [batch, seq,
  // heads, head_dim]; differentiable. q and k are [batch, seq, heads, head_dim], each with its own number of
  // heads; heads and positions may have any strides. With norms of size head_dim, each head is normalised
  // first; nullptr: no norms. On a GPU this is one kernel.
  static std::pair<at::Tensor, at::Tensor> apply(const at::Tensor& q, const at::Tensor& k,
                                                 const RmsNorm* q_norm, const RmsNorm* k_norm,
                                                 const Tables& tables);

  // Whether keys that were rotated in a shorter sequence are wrong now that it has `length` positions: type
  // longrope, when the long factors begin to hold. (Type dynamic keeps them, as Transformers does.)
  bool invalidates_keys(int64_t length) const {
    return parameters_.type == RopeType::longrope &&
           length == parameters_.original_max_position_embeddings + 1;
  }

 private:
  at::Tensor inverse_frequencies(const std::vector<int64_t>& lengths, bool in_one_row) const;

  RopeParameters parameters_;
  at::Tensor on_device(const at::Tensor& frequencies, at::Device device) const;
  at::Tensor inverse_frequencies_;  // fp32 [rotary_dim / 2], on the CPU
  mutable at::Tensor on_gpu_;       // the same on the GPU that was used last
};

}  // namespace trainer
