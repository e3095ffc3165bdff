// Rotary position embedding (Su et al. 2021) in the rotate-half form of Llama and Qwen, with the ways to
// stretch it that transformers knows (modeling_rope_utils.py).
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

namespace trainer {

enum class RopeType { standard, linear, llama3 };

// What a config.json says about it. Fields that a type does not use keep their defaults.
struct RopeParameters {
  RopeType type = RopeType::standard;
  int64_t rotary_dim = 0;  // so many of a head's first dimensions turn; the others pass
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double original_max_position_embeddings = 8192;        // llama3
};

// From a decoder's config.json as read_model_config gives it: rope_theta, and rope_scaling of type default,
// linear or llama3. Throws FormatError naming any other type.
RopeParameters rope_parameters(const nlohmann::json& config, int64_t head_dim);

class Rotary {
 public:
  explicit Rotary(const RopeParameters& parameters);

  // Broadcast over [batch, heads, seq, rotary_dim / 2].
  struct Tables {
    at::Tensor cos, sin;
  };
  // Of these positions, int64 [seq] or [batch, seq]; computed in fp32, cast to the type of `options`.
  Tables tables(const at::Tensor& positions, const at::TensorOptions& options) const;

  // x [batch, heads, seq, head_dim] rotated; differentiable.
  static at::Tensor apply(const at::Tensor& x, const Tables& tables);

 private:
  at::Tensor inverse_frequencies_;  // fp32 [rotary_dim / 2], on the CPU
};

}  // namespace trainer
