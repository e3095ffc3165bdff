#include "nn/gated_delta_rule.h"

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

std::vector<int64_t> numbers_of(const DeltaShape& shape, const TokenRuns& runs) {
  std::vector<int64_t> out{shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim};
  for (const TokenRun& run : runs) {
    out.push_back(run.first);
    out.push_back(run.tokens);
  }
  return out;
}

// On a GPU the composed operators run again, and LibTorch differentiates them. `saved`: qkv, decay, beta, the
// convolution's weight.
variable_list composed_gradients(const at::Tensor& grad, const variable_list& saved, const DeltaShape& shape,
                                 const TokenRuns& runs, bool needs_weight) {
  const at::AutoGradMode record(true);
  variable_list in;
  for (size_t i = 0; i < 4; i++) in.push_back(saved[i].detach().requires_grad_(i < 3 || needs_weight));
  const at::Tensor mixed = causal_conv_composed(in[0], in[3], runs, /*silu=*/true);
  const DeltaResult result = gated_delta_composed({mixed, in[1], in[2]}, shape, runs, false);
  if (!needs_weight) in.pop_back();
  variable_list out = torch::autograd::grad({result.out}, in, {grad});
  out.resize(5);
  return out;
}

struct DeltaRuleFunction : torch::autograd::Function<DeltaRuleFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& decay,
                            const at::Tensor& beta, const at::Tensor& weight,
                            const std::vector<int64_t>& numbers) {
    const auto [shape, runs] = shape_and_runs(numbers);
    const at::Tensor mixed = causal_conv(qkv, weight, runs, /*silu=*/true);
    const DeltaResult result = gated_delta({mixed, decay, beta}, shape, runs, /*wants_last_states=*/false);
    ctx->save_for_backward({qkv, decay, beta, weight, result.kept_states});
    ctx->saved_data["numbers"] = numbers;
    return result.out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [shape, runs] = shape_and_runs(ctx->saved_data["numbers"].toIntVector());
    const bool needs_weight = ctx->needs_input_grad(3);
    if (runs_on_gpu(grads[0].device())) return composed_gradients(grads[0], saved, shape, runs, needs_weight);
    const at::Tensor mixed = causal_conv(saved[0], saved[3], runs, /*silu=*/true);
    auto [g_mixed, g_decay, g_beta] =
        gated_delta_backward(grads[0], {mixed, saved[1], saved[2]}, saved[4], shape, runs);
    const auto [g_qkv, g_weight] =
        causal_conv_backward(g_mixed, saved[0], saved[3], runs, /*silu=*/true, needs_weight);
    return {g_qkv, g_decay, g_beta, g_weight, {}};
  }

 private:
  static std::pair<DeltaShape, TokenRuns> shape_and_runs(const std::vector<int64_t>& numbers) {
    TokenRuns runs;
    for (size_t i = 4; i < numbers.size(); i += 2) runs.push_back({numbers[i], numbers[i + 1]});
    return {{numbers[0], numbers[1], numbers[2], numbers[3]}, runs};
  }
};

}  // namespace

at::Tensor gated_delta_rule(const DeltaInputs& in, const at::Tensor& conv_weight, const DeltaShape& shape,
                            const TokenRuns& runs) {
  return DeltaRuleFunction::apply(in.qkv, in.decay, in.beta, conv_weight, numbers_of(shape, runs));
}

}  // namespace trainer
