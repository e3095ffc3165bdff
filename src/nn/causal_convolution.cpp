#include "nn/causal_convolution.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "nn/composed_gradients.h"
#include "ops/causal_conv.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CausalConvFunction : torch::autograd::Function<CausalConvFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::vector<int64_t>& numbers) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["numbers"] = numbers;
    return causal_conv(x, weight, runs_from(numbers), /*silu=*/false);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const TokenRuns runs = runs_from(ctx->saved_data["numbers"].toIntVector());
    const auto [gx, g_weight] = causal_convolution_gradients(grads[0], saved[0], saved[1], runs,
                                                             /*silu=*/false, ctx->needs_input_grad(1));
    return {gx, g_weight, {}};
  }
};

}  // namespace

std::tuple<at::Tensor, at::Tensor> causal_convolution_gradients(const at::Tensor& grad, const at::Tensor& x,
                                                                const at::Tensor& weight,
                                                                const TokenRuns& runs, bool silu,
                                                                bool needs_weight) {
  if (!runs_on_gpu(grad.device()) || takes_causal_conv(x, weight.size(2)))
    return causal_conv_backward(grad, x, weight, runs, silu, needs_weight);
  const auto composed = [&](const variable_list& in) {
    return causal_conv_composed(in[0], in[1], runs, silu);
  };
  const variable_list gradients =
      composed_gradients(composed, {x, weight}, grad, needs_weight ? 2 : 1, /*arguments=*/2);
  return {gradients[0], gradients[1]};
}

at::Tensor causal_convolution(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs) {
  return CausalConvFunction::apply(x, weight, numbers_of(runs));
}

}  // namespace trainer
