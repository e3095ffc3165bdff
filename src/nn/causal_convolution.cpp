#include "nn/causal_convolution.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "ops/causal_conv.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CausalConvFunction : torch::autograd::Function<CausalConvFunction> {
  // numbers: the first row and the tokens of each run
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::vector<int64_t>& numbers) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["numbers"] = numbers;
    return causal_conv(x, weight, runs_from(numbers), /*silu=*/false);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const TokenRuns runs = runs_from(ctx->saved_data["numbers"].toIntVector());
    const bool needs_weight = ctx->needs_input_grad(1);
    if (runs_on_gpu(grads[0].device())) return composed(grads[0], saved, runs, needs_weight);
    const auto [gx, g_weight] =
        causal_conv_backward(grads[0], saved[0], saved[1], runs, /*silu=*/false, needs_weight);
    return {gx, g_weight, {}};
  }

 private:
  static TokenRuns runs_from(const std::vector<int64_t>& numbers) {
    TokenRuns runs;
    for (size_t i = 0; i < numbers.size(); i += 2) runs.push_back({numbers[i], numbers[i + 1]});
    return runs;
  }

  // On a GPU the composed operators run again, and LibTorch differentiates them.
  static variable_list composed(const at::Tensor& grad, const variable_list& saved, const TokenRuns& runs,
                                bool needs_weight) {
    const at::AutoGradMode record(true);
    variable_list in{saved[0].detach().requires_grad_(), saved[1].detach().requires_grad_(needs_weight)};
    const at::Tensor out = causal_conv_composed(in[0], in[1], runs, /*silu=*/false);
    if (!needs_weight) in.pop_back();
    variable_list gradients = torch::autograd::grad({out}, in, {grad});
    gradients.resize(3);
    return gradients;
  }
};

}  // namespace

at::Tensor causal_convolution(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs) {
  std::vector<int64_t> numbers;
  for (const TokenRun& run : runs) {
    numbers.push_back(run.first);
    numbers.push_back(run.tokens);
  }
  return CausalConvFunction::apply(x, weight, numbers);
}

}  // namespace trainer
