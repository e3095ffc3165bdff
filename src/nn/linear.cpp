#include "trainer/nn/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "device/target_device.h"
#include "nn/dora_linear.h"
#include "nn/few_rows_linear.h"
#include "nn/linear_group.h"
#include "ops/matmul.h"
#include "weights/fp8_products.h"

namespace trainer {
namespace {

// Up to this number of rows, reading the weight takes longer than multiplying it, so widening it to fp32
// costs more than it saves.
constexpr int64_t kFewRows = 32;

// Not in training: there a sample's numbers would be rounded differently if its micro-batch is small.
at::ScalarType type_of_products(const at::Tensor& x, const ForwardContext& context) {
  const bool few = !context.training && x.numel() <= kFewRows * x.size(-1);
  return few ? x.scalar_type() : product_type(x);
}

// Where ForwardContext::widen_once asks for it, the weight as a tensor in the type of x: what a product of
// its own would make of it. Autograd holds the tensor until the gradient of x has used it.
Weight weight_to_multiply(const Weight& weight, const at::Tensor& x, const ForwardContext& context) {
  const bool again = context.widen_once && context.recomputed && at::GradMode::is_enabled();
  if (!again || weight.is_tensor() || !runs_on_gpu(x.device()) || multiplied_in_fp8(x, weight)) return weight;
  return weight.materialize(x.scalar_type());
}

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, bool has_bias)
    : weight({out_features, in_features}) {
  weight.large = true;
  add("weight", weight);
  if (has_bias) add("bias", bias.emplace(std::vector<int64_t>{out_features}));
}

void Linear::add_lora(const LoraOptions& options) {
  const int64_t out_features = weight.shape[0], in_features = weight.shape[1];
  lora.reset(new Lora{options, {options.r, in_features}, {out_features, options.r}, std::nullopt});
  const std::vector<int64_t> outputs{out_features};
  add("lora_A", lora->a);
  add("lora_B", lora->b);
  if (options.bias) lora->b.add("bias", lora->b.bias.emplace(outputs));
  if (options.dora) add("lora_magnitude_vector", lora->magnitude.emplace(outputs));
}

at::Tensor Linear::forward(const LayerInput& x, const at::Tensor& row_keys,
                           const ForwardContext& context) const {
  return forward_together({this}, x, row_keys, context)[0];
}

std::vector<at::Tensor> Linear::forward_together(const std::vector<const Linear*>& layers,
                                                 const LayerInput& in, const at::Tensor& row_keys,
                                                 const ForwardContext& context) {
  const at::Tensor& x = in.x;
  std::vector<Projection> projections;
  for (const Linear* layer : layers) {
    if (!layer->is_dora()) projections.push_back(layer->projection(x, context));
  }
  at::Tensor rows;
  if (context.few_rows || projections.size() < layers.size()) rows = x.reshape({-1, x.size(-1)});
  std::vector<at::Tensor> together, out;
  if (!projections.empty()) {
    together = context.few_rows && can_take_few_rows(rows, projections)
                   ? few_rows_linear(rows, projections)
                   : linear_group(in, row_keys, projections, type_of_products(x, context), context.packs);
  }
  auto next = together.begin();
  std::vector<int64_t> shape = x.sizes().vec();
  for (const Linear* layer : layers) {
    at::Tensor y = layer->is_dora() ? layer->dora_forward(rows, row_keys, context) : *next++;
    if (layer->lora && layer->lora->b.bias) {
      y = y + layer->lora->b.bias->as(x.scalar_type()) * layer->lora->options.scale;
    }
    shape.back() = y.size(-1);
    out.push_back(y.dim() == x.dim() ? y : y.view(shape));
  }
  return out;
}

Projection Linear::projection(const at::Tensor& x, const ForwardContext& context) const {
  const at::ScalarType type = x.scalar_type();
  Projection out;
  out.weight = weight_to_multiply(weight.value.resident(), x, context);
  if (bias) out.bias = bias->as(type);
  if (!lora) return out;
  out.a = lora->a.weight.value.tensor();
  out.b = lora->b.weight.value.tensor();
  out.key = name_key();
  out.dropout = context.training ? lora->options.dropout : 0.0;
  out.scale = lora->options.scale;
  return out;
}

// x [rows, in_features] -> [rows, out_features]. The Function takes a frozen bias; a trained bias is added to
// its result.
at::Tensor Linear::dora_forward(const at::Tensor& x, const at::Tensor& row_keys,
                                const ForwardContext& context) const {
  const at::ScalarType type = x.scalar_type(), adapter_type = product_type(x);
  const bool outside = bias && bias->trained();
  std::optional<at::Tensor> b;
  if (bias && !outside) b = bias->as(type);
  const at::Tensor y = dora_linear(x, weight_to_multiply(weight.value.resident(), x, context), b,
                                   lora->a.weight.as(adapter_type), lora->b.weight.as(adapter_type),
                                   lora->magnitude->as(at::kFloat) / dora_norm(), row_keys, name_key(),
                                   context.training ? lora->options.dropout : 0.0, lora->options.scale);
  return outside ? y + bias->as(type) : y;
}

at::Tensor Linear::dora_norm() const {
  return trainer::dora_norm(weight.value.resident(), lora->a.weight.as(at::kFloat),
                            lora->b.weight.as(at::kFloat), lora->options.scale);
}

}  // namespace trainer
