#include "trainer/nn/linear.h"

#include <ATen/ATen.h>

#include "trainer/nn/matmul.h"

#include "nn/linear_group.h"

namespace trainer {

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
  return forward_together({this}, x, row_keys, context)[0];
}

std::vector<at::Tensor> Linear::forward_together(const std::vector<const Linear*>& layers,
                                                 const at::Tensor& x, const at::Tensor& row_keys,
                                                 const ForwardContext& context) {
  std::vector<Projection> projections;
  for (const Linear* layer : layers) projections.push_back(layer->projection(x, context));
  std::vector<at::Tensor> out = linear_group(x.reshape({-1, x.size(-1)}), row_keys, projections);
  std::vector<int64_t> shape = x.sizes().vec();
  for (at::Tensor& y : out) {
    shape.back() = y.size(1);
    y = y.view(shape);
  }
  return out;
}

Projection Linear::projection(const at::Tensor& x, const ForwardContext& context) const {
  const at::ScalarType type = x.scalar_type();
  Projection out;
  out.weight = weight.as(type);
  if (bias) out.bias = bias->as(type);
  if (!lora) return out;
  const at::ScalarType adapter_type = multiplies_wide(x.device()) ? at::kFloat : type;
  out.a = lora->a.weight.as(adapter_type);
  out.b = lora->b.weight.as(adapter_type);
  out.key = context.random_key ^ name_key();
  out.dropout = context.training ? lora->options.dropout : 0.0;
  out.scale = lora->options.scale;
  return out;
}

}  // namespace trainer
