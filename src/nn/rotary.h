// Rotary position embedding (Su et al. 2021) in the rotate-half form of Llama and Qwen, with the scaling
// methods of transformers (modeling_rope_utils.py).
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "nn/norm.h"

namespace trainer {

enum class RopeType { standard, linear, dynamic, yarn, llama3 };

// What config.json says about it. Each type uses only the fields that it needs.
struct RopeParameters {
  RopeType type = RopeType::standard;
  int64_t head_dim = 0;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t max_position_embeddings = 0;                   // dynamic
  int64_t original_max_position_embeddings = 0;          // yarn, llama3
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn
  double attention_factor = 1.0;                         // yarn: on cos and sin
};

// Reads them from a decoder's config.json as read_model_config() returns it: rope_theta, and rope_scaling of
// type default, linear, dynamic, yarn or llama3. All but the first two need max_position_embeddings. Throws
// FormatError for any other type, with its name, and for a missing key that the type needs.
RopeParameters rope_parameters(const nlohmann::json& config, int64_t head_dim);

class Rotary {
 public:
  explicit Rotary(const RopeParameters& parameters);

  // Broadcastable to [batch, heads, seq, head_dim / 2].
  struct Tables {
    at::Tensor cos, sin;
  };
  // Returns the tables for these positions, int64 [seq] or [batch, seq]; computed in fp32, cast to the type
  // of `options`. `lengths` are the current lengths of the batch's sequences, without padding. If the
  // positions are one row and there are several lengths, the sequences are packed in that row. Type dynamic
  // stretches each sequence beyond max_position_embeddings by its own length, so the result does not depend
  // on how the batch is split.
  Tables tables(const at::Tensor& positions, const std::vector<int64_t>& lengths,
                const at::TensorOptions& options) const;

  // Returns the queries and keys rotated, [batch, heads, seq, head_dim], laid out in memory as [batch, seq,
  // heads, head_dim]; differentiable. q and k are [batch, seq, heads, head_dim], each with its own number of
  // heads; heads and positions may have any strides. With norms of size head_dim, each head is normalised
  // first; nullptr: no norms. On a GPU this is one kernel.
  static std::pair<at::Tensor, at::Tensor> apply(const at::Tensor& q, const at::Tensor& k,
                                                 const RmsNorm* q_norm, const RmsNorm* k_norm,
                                                 const Tables& tables);

 private:
  at::Tensor inverse_frequencies(const std::vector<int64_t>& lengths, bool in_one_row) const;

  RopeParameters parameters_;
  at::Tensor on_device(const at::Tensor& frequencies, at::Device device) const;
  at::Tensor inverse_frequencies_;  // fp32 [head_dim / 2], on the CPU
  mutable at::Tensor on_gpu_;       // the same on the GPU that was used last
};

}  // namespace trainer
