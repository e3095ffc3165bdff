#include "nn/gated_delta_rule.h"

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "nn/causal_convolution.h"
#include "nn/composed_gradients.h"
#include "ops/causal_conv.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The shape, and then the runs.
std::vector<int64_t> to_numbers(const DeltaShape& shape, const TokenRuns& runs) {
  std::vector<int64_t> out{shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim};
  const std::vector<int64_t> of_runs = numbers_of(runs);
  out.insert(out.end(), of_runs.begin(), of_runs.end());
  return out;
}

std::pair<DeltaShape, TokenRuns> shape_and_runs(at::IntArrayRef numbers) {
  return {{numbers[0], numbers[1], numbers[2], numbers[3]}, runs_from(numbers.slice(4))};
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
    const at::Tensor mixed = causal_conv(saved[0], saved[3], runs, /*silu=*/true);
    const variable_list of_rule =
        rule_gradients(grads[0], {mixed, saved[1], saved[2]}, saved[4], shape, runs);
    const auto [g_qkv, g_weight] =
        causal_convolution_gradients(of_rule[0], saved[0], saved[3], runs, /*silu=*/true, needs_weight);
    return {g_qkv, of_rule[1], of_rule[2], g_weight, {}};
  }

 private:
  // What no kernel computes on a GPU runs again there of composed operators, and LibTorch differentiates
  // them.
  static variable_list rule_gradients(const at::Tensor& grad, const DeltaInputs& in, const at::Tensor& kept,
                                      const DeltaShape& shape, const TokenRuns& runs) {
    if (runs_on_gpu(grad.device()) && !takes_gated_delta(in.qkv, shape)) {
      const auto composed = [&](const variable_list& t) {
        return gated_delta_composed({t[0], t[1], t[2]}, shape, runs, /*wants_last_states=*/false).out;
      };
      return composed_gradients(composed, in.tensors(), grad, /*needed=*/3, /*arguments=*/3);
    }
    const auto [qkv, decay, beta] = gated_delta_backward(grad, in, kept, shape, runs);
    return {qkv, decay, beta};
  }
};

}  // namespace

at::Tensor gated_delta_rule(const DeltaInputs& in, const at::Tensor& conv_weight, const DeltaShape& shape,
                            const TokenRuns& runs) {
  return DeltaRuleFunction::apply(in.qkv, in.decay, in.beta, conv_weight, to_numbers(shape, runs));
}

}  // namespace trainer
