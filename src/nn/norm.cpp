#include "trainer/nn/norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps x and one number a row; plain autograd keeps five copies of x.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor wide = x.to(at::kFloat);
    const at::Tensor inverse_rms =
        wide.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();  // [..., 1]
    ctx->save_for_backward({x, weight, inverse_rms});
    return (wide * inverse_rms).to(x.scalar_type()).mul_(weight);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inverse_rms = saved[2];
    const at::Tensor normalised = x.to(at::kFloat) * inverse_rms;
    at::Tensor gx, gw;
    if (ctx->needs_input_grad(1)) {
      gw = (grads[0] * normalised.to(x.scalar_type())).reshape({-1, x.size(-1)}).sum(0);
    }
    if (ctx->needs_input_grad(0)) {
      const at::Tensor g = (grads[0] * weight).to(at::kFloat);
      const at::Tensor along = (g * normalised).mean(-1, /*keepdim=*/true);
      gx = g.addcmul(normalised, along, -1).mul_(inverse_rms).to(x.scalar_type());
    }
    return {gx, gw, {}};
  }
};

}  // namespace

RmsNorm::RmsNorm(int64_t size, double epsilon) : weight({size}), epsilon_(epsilon) { add("weight", weight); }

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return RmsNormFunction::apply(x, weight.as(x.scalar_type()), epsilon_);
}

}  // namespace trainer
