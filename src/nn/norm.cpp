#include "trainer/nn/norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/rms_norm.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps x and one number per row; plain autograd keeps five copies of x.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon, bool plus_one) {
    const auto [y, rstd] = rms_norm(x, weight, epsilon, plus_one);
    ctx->save_for_backward({x, weight, rstd});
    ctx->saved_data["plus_one"] = plus_one;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [gx, gw] = rms_norm_backward(grads[0], saved[0], saved[1], saved[2], ctx->needs_input_grad(0),
                                            ctx->needs_input_grad(1), ctx->saved_data["plus_one"].toBool());
    return {gx, gw, {}, {}};
  }
};

}  // namespace

RmsNorm::RmsNorm(int64_t size, const NormFacts& facts) : weight({size}), facts_(facts) {
  add("weight", weight);
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return RmsNormFunction::apply(x, weight.as(x.scalar_type()), facts_.epsilon,
                                facts_.scale == NormScale::one_plus_weight);
}

}  // namespace trainer
