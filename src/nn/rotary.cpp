#include "trainer/nn/rotary.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/rope_frequencies.h"

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

}  // namespace

Rotary::Rotary(const RopeParameters& parameters)
    : parameters_(parameters), inverse_frequencies_(rope_frequencies(parameters)) {}

// [head_dim / 2], or [batch, 1, head_dim / 2] where a sequence has its own.
at::Tensor Rotary::inverse_frequencies(const std::vector<int64_t>& lengths) const {
  const auto stretched = [&](int64_t length) {
    return parameters_.type == RopeType::dynamic && length > parameters_.max_position_embeddings;
  };
  if (std::ranges::none_of(lengths, stretched)) return inverse_frequencies_;
  std::vector<at::Tensor> rows;
  for (const int64_t length : lengths) {
    rows.push_back(stretched(length) ? stretched_frequencies(parameters_, length) : inverse_frequencies_);
  }
  return at::stack(rows).unsqueeze(1);
}

Rotary::Tables Rotary::tables(const at::Tensor& positions, const std::vector<int64_t>& lengths,
                              const at::TensorOptions& options) const {
  const at::Tensor inverse = inverse_frequencies(lengths).to(options.device());
  at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * inverse;  // [(batch,) seq, head_dim / 2]
  if (angles.dim() == 3) angles = angles.unsqueeze(1);                   // the same for all heads
  at::Tensor cos = angles.cos(), sin = angles.sin();
  if (parameters_.attention_factor != 1.0) {
    cos.mul_(parameters_.attention_factor);
    sin.mul_(parameters_.attention_factor);
  }
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  return {cos.to(type), sin.to(type)};
}

at::Tensor Rotary::apply(const at::Tensor& x, const Tables& tables) {
  return Rotate::apply(x, tables.cos, tables.sin);
}

}  // namespace trainer
