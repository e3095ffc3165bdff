#include "nn/embedding.h"

#include <ATen/ATen.h>

#include "nn/dora_linear.h"

namespace trainer {

Embedding::Embedding(int64_t rows, int64_t size, int64_t padding_idx)
    : weight({rows, size}), padding_idx_(padding_idx) {
  add("weight", weight);
}

Embedding::Embedding(const Embedding* shared, std::optional<int64_t> padding_idx)
    : weight(shared->weight.shape),
      shared_(&shared->weight),
      padding_idx_(padding_idx.value_or(shared->padding_idx_)) {}

at::Tensor Embedding::forward(const at::Tensor& ids, at::ScalarType type) const {
  if (!lora) return table().value.look_up(ids, padding_idx_, type);
  const at::Tensor rows = table().value.look_up(ids, padding_idx_, at::kFloat);
  const at::Tensor low_rank = at::embedding(lora->a.as(at::kFloat).t(), ids, padding_idx_);  // [..., r]
  at::Tensor sum = rows + low_rank.matmul(lora->b.as(at::kFloat).t()) * lora->options.scale;
  if (lora->magnitude) sum = sum * (lora->magnitude->as(at::kFloat) / dora_norm());
  return sum.to(type);
}

void Embedding::own_weight() {
  if (shared_ == nullptr) return;
  weight.shape = shared_->shape;  // the vocabulary may have grown
  weight.value = shared_->value;
  shared_ = nullptr;
  add("weight", weight);
}

void Embedding::add_lora(const LoraOptions& options) {
  const int64_t rows = table().shape[0], size = table().shape[1];
  lora.reset(new Lora{options, Parameter(std::vector<int64_t>{options.r, rows}),
                      Parameter(std::vector<int64_t>{size, options.r}), std::nullopt});
  add("lora_embedding_A", lora->a);
  add("lora_embedding_B", lora->b);
  if (options.dora) add("lora_magnitude_vector", lora->magnitude.emplace(std::vector<int64_t>{size}));
}

at::Tensor Embedding::dora_norm() const {
  const Weight& rows = table().value;
  return trainer::dora_norm(rows.materialize(rows.scalar_type()).t(), lora->a.as(at::kFloat),
                            lora->b.as(at::kFloat), lora->options.scale);
}

float rounded_factor(double factor, at::ScalarType type) {
  const auto whole = static_cast<float>(factor);
  return type == at::kBFloat16 ? static_cast<float>(at::BFloat16(whole)) : whole;
}

}  // namespace trainer
