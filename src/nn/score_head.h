// A head that scores whole texts: the outputs of a classifier, a number, or a reward. It reads the final
// hidden state of one position.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/ops/linear_cross_entropy.h"
#include "trainer/weights/module.h"

namespace trainer {

struct ScoreHeadFacts {
  int64_t hidden_size = 0, outputs = 0;  // no outputs: the states are what is asked for
  // Labels are fp32 numbers, as their bits, and the loss is the squared error; else they are classes.
  bool numbers = false;
  // T5's: a hidden layer with tanh comes first, and both have a bias.
  bool two_layers = false;
  bool bias = false;     // of the only layer
  double dropout = 0.0;  // before each layer
};

// Its parameters are no Linear layers, so adapters and quantisation leave them alone: they are trained as
// they are. What it computes is fp32: it is small, and probabilities depend on its last digits.
class ScoreHead : public Module {
 public:
  explicit ScoreHead(const ScoreHeadFacts& facts);

  // hidden [n, hidden_size] -> what the last layer reads, fp32 [n, hidden_size].
  at::Tensor states(const at::Tensor& hidden, const at::Tensor& row_keys,
                    const ForwardContext& context) const;
  at::Tensor weight() const;  // of the last layer; empty if there are no outputs
  // states() -> fp32 [n, outputs].
  at::Tensor outputs(const at::Tensor& states) const { return outputs(states, weight()); }
  at::Tensor outputs(const at::Tensor& states, const at::Tensor& weight) const;
  // Returns the sum of the losses of states(), each times its row's weight. With options.log_probabilities,
  // which losses of answers ask for, these are the first outputs instead: the rewards.
  LossSum loss(const at::Tensor& states, const at::Tensor& labels, const LossOptions& options,
               const at::Tensor& row_weights) const;

  const ScoreHeadFacts& facts() const { return facts_; }

 private:
  ScoreHeadFacts facts_;
  std::optional<Parameter> out_, out_bias_, dense_, dense_bias_;
};

}  // namespace trainer
