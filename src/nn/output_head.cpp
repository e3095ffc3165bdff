#include "trainer/nn/output_head.h"

#include <ATen/ATen.h>

#include "trainer/nn/dropout.h"

namespace trainer {

at::Tensor head_states(const Linear& head, const at::Tensor& hidden, const at::Tensor& row_keys,
                       const ForwardContext& context) {
  if (!head.lora) return hidden;
  const LoraOptions& options = head.lora->options;
  const double p = context.training ? options.dropout : 0.0;
  TORCH_CHECK(p == 0.0 || !options.dora, "head_states: DoRA with dropout");
  const at::Tensor dropped = dropout(hidden, row_keys, context.random_key ^ head.name_key(), p);
  const at::Tensor low_rank = dropped.matmul(head.lora->a.weight.as(hidden.scalar_type()).t());
  return at::cat({hidden, low_rank * options.scale}, -1);
}

at::Tensor head_weight(const Linear& head, at::ScalarType type) {
  if (!head.lora) return head.weight.as(type);
  const at::Tensor wide = at::cat({head.weight.as(type), head.lora->b.weight.as(type)}, 1);
  if (!head.lora->magnitude) return wide;
  return (wide * (head.lora->magnitude->as(at::kFloat) / head.dora_norm()).unsqueeze(1)).to(type);
}

}  // namespace trainer
