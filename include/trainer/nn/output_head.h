// From final hidden states to logits and to the loss. Training, evaluation, generation and export all use it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/nn/linear.h"
#include "trainer/ops/linear_cross_entropy.h"

namespace trainer {

class Embedding;
class ScoreHead;
struct ScoreHeadFacts;

struct OutputHeadFacts {
  double scale = 1.0;     // multiplies the hidden states before the projection
  double soft_cap = 0.0;  // c: logits become c tanh(logits / c); 0: no cap
};

// Projects with the embedding that it is tied to, until it has a weight of its own. Or it scores texts: then
// what follows is about the outputs of that head in place of the vocabulary.
class OutputHead {
 public:
  // embedding [vocab, hidden_size] must outlive it.
  OutputHead(Parameter& embedding, const OutputHeadFacts& facts);
  ~OutputHead();

  // Gives it a weight of its own with the shape and the value of the embedding. Returns it: the module
  // "lm_head" of the model's tree.
  Linear& own_weight();
  bool tied() const { return !linear_; }
  // Makes it one that scores texts. Returns what the model's tree gets for it.
  Module& score_with(const ScoreHeadFacts& facts);
  // nullptr: it has the vocabulary's outputs.
  const ScoreHead* scores() const { return scores_.get(); }
  // Lets a tied head use the adapter of its embedding, which must outlive it and have one without DoRA
  // (PEFT's ensure_weight_tying): the two stay one matrix.
  void share_adapter(const Embedding& embedding) { shared_ = &embedding; }
  bool shares_adapter() const;
  // Returns the tensors with a row for each token: the embedding and, if it exists, the separate weight.
  std::vector<Parameter*> tables();

  // Returns what the weight is multiplied with: hidden [n, hidden_size], scaled. If the head has an adapter,
  // its low-rank states are further columns: [n, hidden_size + r]. row_keys [n] are the keys of the adapter's
  // dropout, which is not supported together with DoRA here.
  at::Tensor states(const at::Tensor& hidden, const at::Tensor& row_keys,
                    const ForwardContext& context) const;
  // Returns the weight [vocab, columns of the states] in `type`.
  at::Tensor weight(at::ScalarType type) const;

  // Returns the logits, fp32 [n, vocab], of states(). `weight` is weight(type of the states) or a copy of it.
  at::Tensor logits(const at::Tensor& states) const { return logits(states, weight(states.scalar_type())); }
  at::Tensor logits(const at::Tensor& states, const at::Tensor& weight) const;
  // The same in generation, for the few rows that choose a token: the bits of a row do not depend on the
  // others.
  at::Tensor next_logits(const at::Tensor& states) const;

  // Returns the SUM of the token losses of states(). The logits never exist as a whole
  // (linear_cross_entropy.h, which also says what the options and weights of rows do). The soft cap is the
  // head's own.
  LossSum loss(const at::Tensor& states, const at::Tensor& labels, LossOptions options,
               const at::Tensor& row_weights = {}) const;

 private:
  at::Tensor capped(const at::Tensor& logits) const;

  Parameter* embedding_;
  OutputHeadFacts facts_;
  std::optional<Linear> linear_;
  std::unique_ptr<ScoreHead> scores_;
  const Embedding* shared_ = nullptr;
};

}  // namespace trainer
