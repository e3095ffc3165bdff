#include "nn/score_head.h"

#include <ATen/ATen.h>

#include "base/random.h"
#include "ops/dropout.h"

namespace trainer {

ScoreHead::ScoreHead(const ScoreHeadFacts& facts) : facts_(facts) {
  if (facts.outputs == 0) return;
  const std::string last = facts.two_layers ? "out_proj." : "";
  if (facts.two_layers) {
    add("dense.weight", dense_.emplace(std::vector<int64_t>{facts.hidden_size, facts.hidden_size}));
    add("dense.bias", dense_bias_.emplace(std::vector<int64_t>{facts.hidden_size}));
  }
  add(last + "weight", out_.emplace(std::vector<int64_t>{facts.outputs, facts.hidden_size}));
  if (facts.two_layers || facts.bias)
    add(last + "bias", out_bias_.emplace(std::vector<int64_t>{facts.outputs}));
}

at::Tensor ScoreHead::states(const at::Tensor& hidden, const at::Tensor& row_keys,
                             const ForwardContext& context) const {
  const uint64_t key = name_key();
  const double p = context.training ? facts_.dropout : 0.0;
  const at::Tensor x = dropout(hidden.to(at::kFloat), row_keys, derive(key, "in"), p);
  if (!dense_) return x;
  const at::Tensor inner = at::linear(x, dense_->as(at::kFloat), dense_bias_->as(at::kFloat));
  return dropout(inner.tanh(), row_keys, derive(key, "inner"), p);
}

at::Tensor ScoreHead::weight() const { return out_ ? out_->as(at::kFloat) : at::empty({0}); }

at::Tensor ScoreHead::outputs(const at::Tensor& states, const at::Tensor& weight) const {
  if (!out_) return states;
  return out_bias_ ? at::linear(states, weight, out_bias_->as(at::kFloat)) : at::linear(states, weight);
}

LossSum ScoreHead::loss(const at::Tensor& states, const at::Tensor& labels, const LossOptions& options,
                        const at::Tensor& row_weights) const {
  LossSum out;
  out.loss = at::zeros({}, states.options().requires_grad(false));
  if (!out_) return out;
  const at::Tensor scores = outputs(states);
  if (options.log_probabilities) {
    out.log_probabilities = scores.select(1, 0);
    return out;
  }
  const at::Tensor losses = facts_.numbers
                                ? (scores.select(1, 0) - labels.to(at::kInt).view(at::kFloat)).square()
                                : at::cross_entropy_loss(scores, labels, {}, at::Reduction::None,
                                                         /*ignore_index=*/-100, options.label_smoothing);
  out.loss = (row_weights.defined() ? losses * row_weights : losses).sum();
  return out;
}

}  // namespace trainer
