// Rotary position embedding (Su et al. 2021) in the rotate-half form of Llama and Qwen.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

namespace trainer {

class Rotary {
 public:
  // From a decoder's config.json: rope_theta, and rope_scaling of type default, linear or llama3. Throws
  // FormatError naming any other type.
  Rotary(const nlohmann::json& config, int64_t head_dim);

  // cos and sin, each [positions, head_dim / 2], of positions first .. first + count - 1; computed in fp32,
  // cast to the type.
  std::pair<at::Tensor, at::Tensor> tables(int64_t first, int64_t count,
                                           const at::TensorOptions& options) const;

  // x [batch, heads, seq, head_dim] rotated; differentiable.
  static at::Tensor apply(const at::Tensor& x, const std::pair<at::Tensor, at::Tensor>& tables);

 private:
  std::vector<float> inverse_frequencies_;  // [head_dim / 2]
};

}  // namespace trainer
