#include "trainer/nn/rotary.h"

#include <cmath>
#include <numbers>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [x1, x2] -> [x1 cos - x2 sin, x2 cos + x1 sin]; direction -1 turns back, which is the gradient.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int direction) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor out = at::empty_like(x, at::MemoryFormat::Contiguous);
  at::Tensor y1 = out.narrow(-1, 0, half), y2 = out.narrow(-1, half, half);
  at::mul_out(y1, x1, cos).addcmul_(x2, sin, -direction);
  at::mul_out(y2, x2, cos).addcmul_(x1, sin, direction);
  return out;
}

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate(x, cos, sin, 1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {rotate(grads[0], saved[0], saved[1], -1), {}, {}};
  }
};

// Llama 3.1's stretching of the low frequencies (transformers, modeling_rope_utils.py,
// _compute_llama3_parameters).
void scale_llama3(std::vector<float>& frequencies, const nlohmann::json& scaling) {
  const double factor = config_double(scaling, "factor", 8),
               low = config_double(scaling, "low_freq_factor", 1),
               high = config_double(scaling, "high_freq_factor", 4),
               context = config_double(scaling, "original_max_position_embeddings", 8192);
  for (float& f : frequencies) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > context / low) {
      f = static_cast<float>(f / factor);
    } else if (wavelength > context / high) {
      const double smooth = (context / wavelength - low) / (high - low);
      f = static_cast<float>((1 - smooth) * f / factor + smooth * f);
    }
  }
}

}  // namespace

Rotary::Rotary(const nlohmann::json& config, int64_t head_dim) {
  const double theta = config_double(config, "rope_theta", 10000.0);
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    inverse_frequencies_.push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
  }
  if (!config.contains("rope_scaling") || config["rope_scaling"].is_null()) return;
  const nlohmann::json& scaling = config["rope_scaling"];
  const std::string type = config_string(scaling, "rope_type", config_string(scaling, "type", "default"));
  if (type == "linear") {
    for (float& f : inverse_frequencies_) f /= static_cast<float>(config_double(scaling, "factor", 1));
  } else if (type == "llama3") {
    scale_llama3(inverse_frequencies_, scaling);
  } else if (type != "default") {
    throw FormatError(
        concat("config.json: rope type '", type, "' is not supported (supported: default, linear, llama3)"));
  }
}

std::pair<at::Tensor, at::Tensor> Rotary::tables(int64_t first, int64_t count,
                                                 const at::TensorOptions& options) const {
  const at::TensorOptions wide = options.dtype(at::kFloat).requires_grad(false);
  at::Tensor frequencies =
      at::empty({static_cast<int64_t>(inverse_frequencies_.size())}, wide.device(at::kCPU));
  std::copy(inverse_frequencies_.begin(), inverse_frequencies_.end(), frequencies.mutable_data_ptr<float>());
  const at::Tensor angles = at::outer(at::arange(first, first + count, wide), frequencies.to(wide.device()));
  return {angles.cos().to(options.dtype()), angles.sin().to(options.dtype())};
}

at::Tensor Rotary::apply(const at::Tensor& x, const std::pair<at::Tensor, at::Tensor>& tables) {
  return Rotate::apply(x, tables.first, tables.second);
}

}  // namespace trainer
