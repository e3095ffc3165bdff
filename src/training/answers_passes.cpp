#include "training/answers_passes.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/training/evaluate.h"

#include "memory/memory_phase.h"

namespace trainer {
namespace {

double counted(const LabelWeights& weights, SumOf of) {
  return of == SumOf::answer ? weights.answer : weights.nll;
}

MicroBatch laid_out(const AnswersPass& pass, const EffectiveBatch& batch, const std::vector<int64_t>& slots) {
  const InPhase phase(MemoryPhase::input);
  return collate(batch, slots, collate_options(pass.config, pass.model, pass.random_key), pass.device);
}

}  // namespace

std::vector<double> sums_of_answers(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                                    const at::Tensor& log_probabilities, bool encoder_decoder, SumOf of) {
  std::vector<double> sums(slots.size(), 0.0);
  if (log_probabilities.is_meta()) return sums;  // no values exist
  const at::Tensor values = log_probabilities.detach().cpu();
  const float* next = values.const_data_ptr<float>();
  for (size_t i = 0; i < slots.size(); i++)
    for_each_label(
        batch.samples[static_cast<size_t>(slots[i])], encoder_decoder,
        [&](const LabelWeights& weights) { sums[i] += counted(weights, of) * static_cast<double>(*next++); });
  return sums;
}

double label_weight(const Sample& sample, bool encoder_decoder, SumOf of) {
  double sum = 0;
  for_each_label(sample, encoder_decoder, [&](const LabelWeights& weights) { sum += counted(weights, of); });
  return sum;
}

Sample with_answer_of(const Sample& prompt, const Sample& answer, bool encoder_decoder, int64_t max_length) {
  if (encoder_decoder) return {prompt.input_ids, answer.labels, answer.weights};
  const auto is_learned = [](int32_t label) { return label != kIgnore; };
  const auto begin = [&](const Sample& sample) {
    return std::ranges::find_if(sample.labels, is_learned) - sample.labels.begin();
  };
  const auto first = begin(answer);
  const auto last =
      std::find_if(answer.labels.rbegin(), answer.labels.rend(), is_learned).base() - answer.labels.begin();
  Sample mixed;
  mixed.input_ids.assign(prompt.input_ids.begin(), prompt.input_ids.begin() + begin(prompt));
  mixed.labels.assign(mixed.input_ids.size(), kIgnore);
  if (!answer.weights.empty()) mixed.weights.assign(mixed.input_ids.size(), 0.0f);
  const auto append = [&](auto& to, const auto& from) {
    if (from.empty()) return;
    to.insert(to.end(), from.begin() + first, from.begin() + last);
    to.resize(std::min(to.size(), static_cast<size_t>(max_length)));
  };
  append(mixed.input_ids, answer.input_ids);
  append(mixed.labels, answer.labels);
  append(mixed.weights, answer.weights);
  return mixed;
}

EffectiveBatch with_other_answers(const EffectiveBatch& batch, const Sample& last, bool encoder_decoder,
                                  int64_t max_length) {
  EffectiveBatch others;
  others.share = batch.share;
  const Sample* before = &last;
  for (const Sample& sample : batch.samples) {
    others.samples.push_back(with_answer_of(sample, *before, encoder_decoder, max_length));
    before = &sample;
  }
  return others;
}

std::vector<double> sums_of_split(const AnswersPass& pass, const EffectiveBatch& batch,
                                  const MicroBatchSplit& split, PassProgress& at) {
  std::vector<double> sums(batch.samples.size(), 0.0);
  at = {0, "forward"};
  for (; at.micro_batch < split.micro_batches.size(); at.micro_batch++) {
    if (pass.before_each) pass.before_each();
    std::vector<int64_t> slots = split.micro_batches[at.micro_batch];
    if (pass.wanted) std::erase_if(slots, [&](int64_t slot) { return !pass.wanted(slot); });
    if (slots.empty()) continue;
    MicroBatch micro = laid_out(pass, batch, slots);
    if (micro.supervised_labels.numel() == 0) continue;
    micro.supervised_weights.reset();
    const LossSum out = pass.model.loss(micro, pass.context, {.log_probabilities = true});
    const std::vector<double> found =
        sums_of_answers(batch, slots, out.log_probabilities, split.encoder_decoder, pass.of);
    for (size_t i = 0; i < slots.size(); i++) sums[static_cast<size_t>(slots[i])] = found[i];
  }
  return sums;
}

std::vector<double> sums_by_slot(const AnswersPass& pass, const EffectiveBatch& batch, MicroBatchSplit& split,
                                 BatchBudget& budget, OomRecovery& recovery) {
  const at::NoGradGuard no_grad;
  return run_split(recovery, batch, split, budget,
                   [&](PassProgress& at) { return sums_of_split(pass, batch, split, at); });
}

}  // namespace trainer
