#include "trainer/nn/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/nn/dropout.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A frozen weight and its adapter as one Function: backward needs x, and x A^T of width r; the dropped-out
// copy of x that plain autograd would keep is made again from its key.
struct LoraLinear : torch::autograd::Function<LoraLinear> {
  // x [rows, in], a [r, in] and b [out, r] in x's type
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& row_keys, int64_t key, double p, double scale) {
    at::Tensor y = bias ? at::linear(x, weight, bias) : at::linear(x, weight);
    const at::Tensor dropped = p > 0 ? dropout_apply(x, row_keys, static_cast<uint64_t>(key), p) : x;
    const at::Tensor low_rank = dropped.mm(a.t());  // [rows, r]
    y.addmm_(low_rank, b.t(), 1, scale);
    ctx->save_for_backward({x, weight, a, b, low_rank, row_keys});
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    ctx->saved_data["scale"] = scale;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &a = saved[2], &b = saved[3], &low_rank = saved[4],
                     &row_keys = saved[5];
    const uint64_t key = static_cast<uint64_t>(ctx->saved_data["key"].toInt());
    const double p = ctx->saved_data["p"].toDouble(), scale = ctx->saved_data["scale"].toDouble();
    const at::Tensor& gy = grads[0];

    const at::Tensor gb = gy.t().mm(low_rank).mul_(scale);
    const at::Tensor g_low_rank = gy.mm(b).mul_(scale);
    const at::Tensor dropped = p > 0 ? dropout_apply(x, row_keys, key, p) : x;
    const at::Tensor ga = g_low_rank.t().mm(dropped);
    at::Tensor gx;
    if (ctx->needs_input_grad(0)) {
      gx = gy.mm(weight);
      const at::Tensor through_a = g_low_rank.mm(a);
      gx.add_(p > 0 ? dropout_apply(through_a, row_keys, key, p) : through_a);
    }
    return {gx, {}, {}, ga, gb, {}, {}, {}, {}};
  }
};

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, bool has_bias)
    : weight({out_features, in_features}) {
  add("weight", weight);
  if (has_bias) add("bias", bias.emplace(std::vector<int64_t>{out_features}));
}

void Linear::add_lora(const LoraOptions& options) {
  const int64_t out_features = weight.shape[0], in_features = weight.shape[1];
  lora.reset(new Lora{options, {options.r, in_features}, {out_features, options.r}});
  add("lora_A", lora->a);
  add("lora_B", lora->b);
}

at::Tensor Linear::forward(const at::Tensor& x, const at::Tensor& row_keys,
                           const ForwardContext& context) const {
  const at::ScalarType type = x.scalar_type();
  std::optional<at::Tensor> b;
  if (bias) b = bias->as(type);
  if (!lora) return at::linear(x, weight.as(type), b);
  const double p = context.training ? lora->options.dropout : 0.0;
  const at::Tensor y = LoraLinear::apply(
      x.reshape({-1, x.size(-1)}), weight.as(type), b, lora->a.weight.as(type), lora->b.weight.as(type),
      row_keys, static_cast<int64_t>(context.random_key ^ name_key()), p, lora->options.scale);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.shape[0];
  return y.view(shape);
}

}  // namespace trainer
