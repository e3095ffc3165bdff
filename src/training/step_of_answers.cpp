#include "training/step_of_answers.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trainer/data/batching.h"

#include "training/answers_passes.h"

namespace trainer {

StepOfAnswers::StepOfAnswers(const AnswersLoss& loss, EffectiveBatch of, bool encoder_decoder)
    : batch(std::move(of)), loss_(loss), encoder_decoder_(encoder_decoder) {
  for (const Sample& sample : batch.samples)
    tokens_.push_back(std::max(supervised_weight(sample, encoder_decoder), 1e-6));
  reference.assign(tokens_.size(), 0.0);
  policy.assign(tokens_.size(), 0.0);
}

void StepOfAnswers::keep_together(bool together) {
  apart = !together && batch.sides > 1;
  for (size_t slot = 0; slot < batch.samples.size(); slot++)
    batch.samples[slot].group =
        together && batch.sides > 1 ? static_cast<int64_t>(slot) % batch.rows() : int64_t{-1};
}

AnswersOfRow StepOfAnswers::row_of(int64_t row, const std::vector<double>& policy_here) const {
  AnswersOfRow answers;
  for (int64_t side = 0; side < batch.sides; side++) {
    const auto slot = static_cast<size_t>(side * batch.rows() + row), at = static_cast<size_t>(side);
    answers.policy[at] = apart ? policy[slot] : policy_here[slot];
    answers.reference[at] = reference[slot];
    answers.tokens[at] = tokens_[slot];
  }
  answers.desirable = batch.samples[static_cast<size_t>(row)].desirable;
  return answers;
}

at::Tensor StepOfAnswers::gradient(const std::vector<int64_t>& slots, const at::Tensor& log_probabilities) {
  if (log_probabilities.is_meta()) return at::empty_like(log_probabilities);  // no values exist
  const std::vector<double> here = sums_of_answers(batch, slots, log_probabilities, encoder_decoder_);
  std::vector<double> by_slot(batch.samples.size(), 0.0);
  for (size_t i = 0; i < slots.size(); i++) by_slot[static_cast<size_t>(slots[i])] = here[i];
  const auto rows = static_cast<double>(batch.rows());
  at::Tensor gradient = at::empty({log_probabilities.numel()}, at::kFloat);
  float* next = gradient.mutable_data_ptr<float>();
  for (const int64_t slot : slots) {
    const int64_t row = slot % batch.rows(), side = slot / batch.rows();
    AnswerSums ignored;
    const std::array<double, 2> slopes = loss_.slopes(row_of(row, by_slot), kl, side == 0 ? sums : ignored);
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    for (size_t i = encoder_decoder_ ? 0 : 1; i < sample.labels.size(); i++) {
      if (sample.labels[i] == kIgnore) continue;
      const double weight = sample.weights.empty() ? 1.0 : static_cast<double>(sample.weights[i]);
      *next++ = static_cast<float>(slopes[static_cast<size_t>(side)] * weight / rows);
    }
  }
  return gradient.to(log_probabilities.device());
}

}  // namespace trainer
