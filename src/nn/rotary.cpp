#include "trainer/nn/rotary.h"

#include <cmath>
#include <numbers>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [x1, x2, rest] -> [x1 cos - x2 sin, x2 cos + x1 sin, rest]; direction -1 turns back, which is the gradient.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int direction) {
  const int64_t half = cos.size(-1), rest = x.size(-1) - 2 * half;
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor out = at::empty_like(x, at::MemoryFormat::Contiguous);
  at::Tensor y1 = out.narrow(-1, 0, half), y2 = out.narrow(-1, half, half);
  at::mul_out(y1, x1, cos).addcmul_(x2, sin, -direction);
  at::mul_out(y2, x2, cos).addcmul_(x1, sin, direction);
  if (rest > 0) out.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
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

// 1 / theta^(2 i / dim) by the reference's operators in its types: its positions times these are large, so
// the last bit counts.
at::Tensor plain_frequencies(double theta, int64_t dim) {
  const at::Tensor exponents = at::arange(0, dim, 2, at::kFloat).div_(dim);
  return at::pow(theta, exponents).reciprocal_();
}

// Llama 3.1's stretching of the low frequencies (transformers, modeling_rope_utils.py,
// _compute_llama3_parameters).
at::Tensor llama3_frequencies(const at::Tensor& plain, const RopeParameters& p) {
  const double context = p.original_max_position_embeddings;
  const at::Tensor wavelength = plain.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor smooth =
      (wavelength.reciprocal() * context - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  const at::Tensor between = (1 - smooth) * plain / p.factor + smooth * plain;
  const at::Tensor low = at::where(wavelength > context / p.low_freq_factor, plain / p.factor, between);
  return at::where(wavelength < context / p.high_freq_factor, plain, low);
}

at::Tensor frequencies(const RopeParameters& p) {
  const at::Tensor plain = plain_frequencies(p.theta, p.rotary_dim);
  switch (p.type) {
    case RopeType::standard:
      return plain;
    case RopeType::linear:
      return plain / p.factor;
    case RopeType::llama3:
      return llama3_frequencies(plain, p);
  }
  return plain;
}

}  // namespace

Rotary::Rotary(const RopeParameters& parameters) : inverse_frequencies_(frequencies(parameters)) {}

Rotary::Tables Rotary::tables(const at::Tensor& positions, const at::TensorOptions& options) const {
  const at::Tensor inverse = inverse_frequencies_.to(options.device());
  at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * inverse;
  if (positions.dim() == 2) angles = angles.unsqueeze(1);  // the same for all heads
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  return {angles.cos().to(type), angles.sin().to(type)};
}

at::Tensor Rotary::apply(const at::Tensor& x, const Tables& tables) {
  return Rotate::apply(x, tables.cos, tables.sin);
}

}  // namespace trainer
