#include <tuple>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/attention.h"
#include "ops/t5_attention.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps q, k, v, the result, which the projection after it keeps anyway, and a number for each query and
// head.
struct InOneKernel : torch::autograd::Function<InOneKernel> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& bias_weight,
                            const T5AttentionInputs& in) {
    const auto [out, lse] = t5_attention(in);
    ctx->save_for_backward({q, k, v, bias_weight.value_or(at::Tensor()), in.bias_buckets, in.query_starts,
                            in.key_starts, in.key_lengths, in.row_keys, out, lse});
    ctx->saved_data["causal"] = in.causal;
    ctx->saved_data["scale"] = in.scale;
    ctx->saved_data["key"] = in.dropout_key;
    ctx->saved_data["p"] = in.p;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    T5AttentionInputs in;
    std::tie(in.q, in.k, in.v, in.bias_weight, in.bias_buckets, in.query_starts, in.key_starts,
             in.key_lengths, in.row_keys) =
        std::tie(saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6], saved[7], saved[8]);
    in.causal = ctx->saved_data["causal"].toBool();
    in.scale = ctx->saved_data["scale"].toDouble();
    in.dropout_key = ctx->saved_data["key"].toInt();
    in.p = ctx->saved_data["p"].toDouble();
    const bool needs_bias = in.bias_weight.defined() && ctx->needs_input_grad(3);
    const T5AttentionGradients to = t5_attention_backward(in, grads[0], saved[9], saved[10], needs_bias);
    return {to.q, to.k, to.v, needs_bias ? to.bias.to(in.bias_weight.scalar_type()) : to.bias, {}};
  }
};

}  // namespace

at::Tensor attention_in_one_kernel(const AttentionInputs& in, const BiasAndDropout& extra,
                                   const SampleStarts& starts) {
  T5AttentionInputs all;
  all.q = in.q;
  all.k = in.k;
  all.v = in.v;
  all.bias_weight = extra.bias_weight;
  all.bias_buckets = extra.bias_buckets;
  all.query_starts = starts.queries;
  all.key_starts = starts.keys;
  all.key_lengths = extra.key_lengths;
  all.row_keys = extra.row_keys;
  all.causal = in.causal;
  all.scale = in.scale;
  all.dropout_key = static_cast<int64_t>(extra.key);
  all.p = extra.p;
  const std::optional<at::Tensor> bias =
      extra.bias_weight.defined() ? std::optional(extra.bias_weight) : std::nullopt;
  return InOneKernel::apply(in.q, in.k, in.v, bias, all);
}

}  // namespace trainer
