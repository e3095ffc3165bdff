// Log-probabilities of whole answers: passes without gradients, for objectives that compare or judge answers.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"
#include "trainer/models/model.h"
#include "trainer/nn/context.h"

#include "training/oom_recovery.h"

namespace trainer {

// What a label counts: in the log-probability of its answer, and in the answer's own loss. In that the labels
// of the prompt count, too, where there are any (data.loss_on: everything): they have the weight 0.
struct LabelWeights {
  double answer, nll;
};
// Calls use(LabelWeights) for each label of the sample that counts in the loss, in order.
template <class Use>
void for_each_label(const Sample& sample, bool encoder_decoder, const Use& use) {
  for (size_t i = encoder_decoder ? 0 : 1; i < sample.labels.size(); i++) {
    if (sample.labels[i] == kIgnore) continue;
    const double weight = sample.weights.empty() ? 1.0 : static_cast<double>(sample.weights[i]);
    use(LabelWeights{weight, weight == 0 ? 1.0 : weight});
  }
}
enum class SumOf { answer, nll };

// Returns the sum of the labels' weights.
double label_weight(const Sample& sample, bool encoder_decoder, SumOf of);

// Returns, for each of these slots in their order, the sum of its labels' log-probabilities times their
// weights. `log_probabilities`: of the supervised labels, in the order in which collate() lays out the slots.
std::vector<double> sums_of_answers(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                                    const at::Tensor& log_probabilities, bool encoder_decoder,
                                    SumOf of = SumOf::answer);

// Returns the sample's prompt with the answer of another one, which keeps its weights; a decoder's has at
// most max_length tokens. For kto's estimate of the divergence.
Sample with_answer_of(const Sample& prompt, const Sample& answer, bool encoder_decoder, int64_t max_length);

// Returns the batch in which each row has the answer of the row before it, the first one that of `last`.
EffectiveBatch with_other_answers(const EffectiveBatch& batch, const Sample& last, bool encoder_decoder,
                                  int64_t max_length);

// What a pass over a batch needs.
struct AnswersPass {
  const Model& model;
  const Config& config;
  at::Device device;
  ForwardContext context;
  uint64_t random_key = 0;                        // of dropout (CollateOptions)
  std::function<bool(int64_t slot)> wanted = {};  // empty: all slots of this rank's share
  std::function<void()> before_each = {};         // called before each micro-batch; it may throw
  SumOf of = SumOf::answer;
};

// Returns sums_of_answers() by slot, with 0 for those that are not wanted or another rank's. On `meta` all
// are 0.
std::vector<double> sums_of_split(const AnswersPass& pass, const EffectiveBatch& batch,
                                  const MicroBatchSplit& split, PassProgress& at);
// The same without gradients. When out of memory it starts again with a smaller split, as a step does.
std::vector<double> sums_by_slot(const AnswersPass& pass, const EffectiveBatch& batch, MicroBatchSplit& split,
                                 BatchBudget& budget, OomRecovery& recovery);

}  // namespace trainer
