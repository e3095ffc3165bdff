#include "training/step_of_answers.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "training/answers_passes.h"

namespace trainer {

StepOfAnswers::StepOfAnswers(const AnswersLoss& loss, const ObjectiveConfig& objective, EffectiveBatch of,
                             bool encoder_decoder)
    : batch(std::move(of)),
      loss_(loss),
      nll_over_tokens_(objective.nll_over == "tokens"),
      encoder_decoder_(encoder_decoder) {
  constexpr double kLeast = 1e-6;  // an answer of which nothing counts
  for (const Sample& sample : batch.samples)
    tokens_.push_back(std::max(label_weight(sample, encoder_decoder, SumOf::answer), kLeast));
  for (int64_t row = 0; row < batch.rows(); row++) {
    const Sample& chosen = batch.samples[static_cast<size_t>(row)];
    nll_tokens_.push_back(std::max(label_weight(chosen, encoder_decoder, SumOf::nll), kLeast));
    all_nll_tokens_ += nll_tokens_.back();
  }
  reference.assign(tokens_.size(), 0.0);
  policy.assign(tokens_.size(), 0.0);
}

// The mean over rows of sums with this divisor is the mean over answers, or over tokens.
double StepOfAnswers::nll_divisor(int64_t row) const {
  return nll_over_tokens_ ? all_nll_tokens_ / static_cast<double>(batch.rows())
                          : nll_tokens_[static_cast<size_t>(row)];
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
  answers.nll_tokens = nll_divisor(row);
  answers.desirable = batch.samples[static_cast<size_t>(row)].desirable;
  return answers;
}

at::Tensor StepOfAnswers::gradient(const std::vector<int64_t>& slots, const at::Tensor& log_probabilities) {
  if (log_probabilities.is_meta()) return at::empty_like(log_probabilities);  // no values exist
  const auto by_slot = [&](SumOf of) {
    const std::vector<double> here = sums_of_answers(batch, slots, log_probabilities, encoder_decoder_, of);
    std::vector<double> all(batch.samples.size(), 0.0);
    for (size_t i = 0; i < slots.size(); i++) all[static_cast<size_t>(slots[i])] = here[i];
    return all;
  };
  const std::vector<double> answers = by_slot(SumOf::answer), nll = by_slot(SumOf::nll);
  const auto rows = static_cast<double>(batch.rows());
  at::Tensor gradient = at::empty({log_probabilities.numel()}, at::kFloat);
  float* next = gradient.mutable_data_ptr<float>();
  for (const int64_t slot : slots) {
    const int64_t row = slot % batch.rows();
    const auto side = static_cast<size_t>(slot / batch.rows());
    AnswersOfRow of_row = row_of(row, answers);
    of_row.nll = nll[static_cast<size_t>(row)];
    AnswerSums ignored;
    const double slope = loss_.slopes(of_row, kl, side == 0 ? sums : ignored)[side],
                 nll_slope = side == 0 ? loss_.nll_slope(of_row) : 0.0;
    for_each_label(batch.samples[static_cast<size_t>(slot)], encoder_decoder_,
                   [&](const LabelWeights& weights) {
                     *next++ = static_cast<float>((slope * weights.answer + nll_slope * weights.nll) / rows);
                   });
  }
  return gradient.to(log_probabilities.device());
}

}  // namespace trainer
