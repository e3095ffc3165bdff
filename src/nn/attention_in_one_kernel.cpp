#include <tuple>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/attention.h"
#include "ops/plain_view.h"
#include "ops/t5_attention.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows [B, rows, H K] by head, [B, H, rows, K], and back.
at::Tensor by_head(const at::Tensor& x, int64_t heads) {
  const int64_t dim = x.size(2) / heads;
  return plain_view(x, {x.size(0), heads, x.size(1), dim},
                    {x.stride(0), dim * x.stride(2), x.stride(1), x.stride(2)}, x.storage_offset());
}
at::Tensor by_row(const at::Tensor& x) {
  TORCH_INTERNAL_ASSERT(x.stride(1) == x.size(3) * x.stride(3));
  return plain_view(x, {x.size(0), x.size(2), x.size(1) * x.size(3)}, {x.stride(0), x.stride(2), x.stride(3)},
                    x.storage_offset());
}

// Keeps q, k, v, the result, which the projection after it keeps anyway, and a number for each query and
// head.
struct InOneKernel : torch::autograd::Function<InOneKernel> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& bias_weight, int64_t heads,
                            T5AttentionInputs in) {
    in.q = by_head(q, heads);
    in.k = by_head(k, heads);
    in.v = by_head(v, heads);
    const auto [by_heads, lse] = t5_attention(in);
    const at::Tensor out = by_row(by_heads);
    ctx->save_for_backward({q, k, v, bias_weight.value_or(at::Tensor()), in.bias_buckets, in.query_starts,
                            in.key_starts, in.key_lengths, in.row_keys, out, lse});
    ctx->saved_data["heads"] = heads;
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
    const int64_t heads = ctx->saved_data["heads"].toInt();
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = by_head(*x, heads);
    in.causal = ctx->saved_data["causal"].toBool();
    in.scale = ctx->saved_data["scale"].toDouble();
    in.dropout_key = ctx->saved_data["key"].toInt();
    in.p = ctx->saved_data["p"].toDouble();
    const bool needs_bias = in.bias_weight.defined() && ctx->needs_input_grad(3);
    const T5AttentionGradients to =
        t5_attention_backward(in, by_head(grads[0], heads), by_head(saved[9], heads), saved[10], needs_bias);
    const at::Tensor bias = needs_bias ? to.bias.to(in.bias_weight.scalar_type()) : at::Tensor();
    return {by_row(to.q), by_row(to.k), by_row(to.v), bias, {}, {}};
  }
};

}  // namespace

at::Tensor attention_in_one_kernel(const PackedAttentionInputs& in, const BiasAndDropout& extra,
                                   const SampleStarts& starts) {
  T5AttentionInputs all;
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
  return InOneKernel::apply(in.q, in.k, in.v, bias, in.heads, all);
}

}  // namespace trainer
