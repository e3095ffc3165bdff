#include "trainer/nn/output_head.h"

#include <ATen/ATen.h>

#include "base/random.h"
#include "nn/embedding.h"
#include "nn/few_rows_linear.h"
#include "nn/score_head.h"
#include "ops/dropout.h"

namespace trainer {

OutputHead::OutputHead(Parameter& embedding, const OutputHeadFacts& facts)
    : embedding_(&embedding), facts_(facts) {}
OutputHead::~OutputHead() = default;

Module& OutputHead::score_with(const ScoreHeadFacts& facts) {
  scores_ = std::make_unique<ScoreHead>(facts);
  return *scores_;
}

Linear& OutputHead::own_weight() {
  linear_.emplace(embedding_->shape[1], embedding_->shape[0], false);
  linear_->weight.value = embedding_->value;
  return *linear_;
}

bool OutputHead::shares_adapter() const { return tied() && shared_ != nullptr && shared_->lora; }

std::vector<Parameter*> OutputHead::tables() {
  if (tied()) return {embedding_};
  return {embedding_, &linear_->weight};
}

at::Tensor OutputHead::states(const at::Tensor& hidden, const at::Tensor& row_keys,
                              const ForwardContext& context) const {
  if (scores_) return scores_->states(hidden, row_keys, context);
  const at::Tensor scaled = facts_.scale == 1.0 ? hidden : hidden * facts_.scale;
  if (shares_adapter()) {  // the head's A is the transposed B of the embedding
    const Embedding::Lora& lora = *shared_->lora;
    const double p = context.training ? lora.options.dropout : 0.0;
    const at::Tensor dropped = dropout(scaled, row_keys, derive(0, "lm_head"), p);
    return at::cat({scaled, dropped.matmul(lora.b.as(hidden.scalar_type())) * lora.options.scale}, -1);
  }
  if (tied() || !linear_->lora) return scaled;
  const LoraOptions& options = linear_->lora->options;
  const double p = context.training ? options.dropout : 0.0;
  TORCH_CHECK(p == 0.0 || !options.dora, "output head: DoRA with dropout");
  const at::Tensor dropped = dropout(scaled, row_keys, linear_->name_key(), p);
  const at::Tensor low_rank = dropped.matmul(linear_->lora->a.weight.as(hidden.scalar_type()).t());
  return at::cat({scaled, low_rank * options.scale}, -1);
}

at::Tensor OutputHead::weight(at::ScalarType type) const {
  if (scores_) return scores_->weight();
  if (shares_adapter()) return at::cat({embedding_->as(type), shared_->lora->a.as(type).t()}, 1);
  if (tied()) return embedding_->as(type);
  if (!linear_->lora) return linear_->weight.as(type);
  const at::Tensor wide = at::cat({linear_->weight.as(type), linear_->lora->b.weight.as(type)}, 1);
  if (!linear_->lora->magnitude) return wide;
  return (wide * (linear_->lora->magnitude->as(at::kFloat) / linear_->dora_norm()).unsqueeze(1)).to(type);
}

at::Tensor OutputHead::logits(const at::Tensor& states, const at::Tensor& weight) const {
  if (scores_) return scores_->outputs(states, weight);
  return capped(at::linear(states, weight).to(at::kFloat));
}

at::Tensor OutputHead::next_logits(const at::Tensor& states) const {
  const bool plain = !shares_adapter() && (tied() || !linear_->lora);
  if (!plain) return logits(states);
  const at::Tensor found = few_rows_product(states, (tied() ? *embedding_ : linear_->weight).value);
  return found.defined() ? capped(found.to(at::kFloat)) : logits(states);
}

at::Tensor OutputHead::capped(const at::Tensor& logits) const {
  return facts_.soft_cap > 0 ? logits.div(facts_.soft_cap).tanh_().mul_(facts_.soft_cap) : logits;
}

LossSum OutputHead::loss(const at::Tensor& states, const at::Tensor& labels, LossOptions options,
                         const at::Tensor& row_weights) const {
  if (scores_) return scores_->loss(states, labels, options, row_weights);
  options.soft_cap = facts_.soft_cap;
  return linear_cross_entropy(states, weight(states.scalar_type()), labels, options, row_weights);
}

}  // namespace trainer
