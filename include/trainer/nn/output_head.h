// From final hidden states to logits and to the loss: the one place that training, evaluation, generation and
// export share.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/linear_cross_entropy.h"

namespace trainer {

struct OutputHeadFacts {
  double scale = 1.0;     // on the hidden states, before the projection
  double soft_cap = 0.0;  // c: logits become c tanh(logits / c); 0: no cap
};

// Projects by the embedding that it is tied to, until it has a weight of its own.
class OutputHead {
 public:
  // embedding [vocab, hidden_size] outlives it.
  OutputHead(Parameter& embedding, const OutputHeadFacts& facts) : embedding_(&embedding), facts_(facts) {}

  // From now on it has a weight of its own, with the shape and the value of the embedding: the module
  // "lm_head" of the model's tree.
  Linear& own_weight();
  bool tied() const { return !linear_; }
  // The tensors with a row for each token: the embedding and, where there is one, the weight of its own.
  std::vector<Parameter*> tables();

  // What the weight is multiplied by: hidden [n, hidden_size] scaled. Where an adapter is on the head, its
  // low-rank states are further columns: [n, hidden_size + r]. row_keys [n] for the adapter's dropout, which
  // is not supported together with DoRA here.
  at::Tensor states(const at::Tensor& hidden, const at::Tensor& row_keys,
                    const ForwardContext& context) const;
  // [vocab, columns of the states] in `type`
  at::Tensor weight(at::ScalarType type) const;

  // fp32 [n, vocab] of states(); `weight` is weight(type of the states) or a copy of it.
  at::Tensor logits(const at::Tensor& states) const { return logits(states, weight(states.scalar_type())); }
  at::Tensor logits(const at::Tensor& states, const at::Tensor& weight) const;

  // The SUM of token losses of states(), without the logits as a whole (linear_cross_entropy).
  LossSum loss(const at::Tensor& states, const at::Tensor& labels, double label_smoothing,
               bool count_correct) const;

 private:
  Parameter* embedding_;
  OutputHeadFacts facts_;
  std::optional<Linear> linear_;
};

}  // namespace trainer
