// Steps whose objective compares or judges answers. Before their passes come those without gradients that
// they need: of the reference, unless it is kept; of kto's other answers; and of the model, where the two
// answers of a row cannot go through it together.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/nn/linear.h"
#include "trainer/training/trainer.h"

#include "adapters/adapter_off.h"
#include "objectives/answers.h"
#include "training/answers_passes.h"
#include "training/placement.h"
#include "training/step_of_answers.h"

namespace trainer {
namespace {

bool all_kept(const EffectiveBatch& batch) {
  return std::ranges::all_of(batch.samples,
                             [](const Sample& sample) { return sample.reference.has_value(); });
}

// Whether the head's weight gets gradients, or a part of it. An embedding that is trained counts, too.
bool trains_head(Model& model) {
  if (model.head().scores() != nullptr) return false;  // its rewards are differentiable in all weights
  const std::vector<Parameter*> tables = model.vocabulary();
  if (model.head().shares_adapter() ||
      std::ranges::any_of(tables, [](const Parameter* table) { return table->trained(); }))
    return true;
  bool found = false;
  model.for_each_module([&](const std::string& name, Module& module) {
    const auto* linear = dynamic_cast<const Linear*>(&module);
    found |= name == "lm_head" && linear != nullptr && linear->lora;
  });
  return found;
}

}  // namespace

std::vector<double> Trainer::sums_over_ranks(const EffectiveBatch& batch, const ForwardContext& context,
                                             OomRecovery& recovery) {
  std::vector<double> sums;
  run_on_all_ranks(model_, ranks_, [&] {
    MicroBatchSplit split = first_split(batch, nullptr);
    sums = sums_by_slot({model_, config_, device_, context, random_key()}, batch, split, budgets_.training,
                        recovery);
  });
  return device_.is_meta() ? sums : all_reduce(ranks_, sums);
}

void Trainer::prepare_answers(const EffectiveBatch& batch, OomRecovery& recovery) {
  weights_changed();  // a checkpoint may have been read
  const bool encoder_decoder = model_.encoder_decoder();
  answers_ = std::make_unique<StepOfAnswers>(*answers_loss_, config_.objective, batch, encoder_decoder);
  answers_->keep_together(!answers_apart_ && config_.training.batch_size > 1);
  EffectiveBatch others;
  std::vector<double> reference_of_others;
  if (config_.objective.judges())
    others = with_other_answers(batch, batch.samples.back(), encoder_decoder, config_.data.max_length);
  if (config_.objective.has_reference()) find_references(others, reference_of_others, recovery);
  ForwardContext context = step_context();
  context.kept_inputs = nullptr;
  if (answers_->apart) answers_->policy = sums_over_ranks(answers_->batch, context, recovery);
  if (others.samples.empty()) return;
  context.training = false;
  answers_->kl = AnswersLoss::divergence(sums_over_ranks(others, context, recovery), reference_of_others);
}

void Trainer::find_references(const EffectiveBatch& others, std::vector<double>& of_others,
                              OomRecovery& recovery) {
  const EffectiveBatch& batch = answers_->batch;
  const bool kept = all_kept(batch);
  for (size_t slot = 0; kept && slot < batch.samples.size(); slot++)
    answers_->reference[slot] = *batch.samples[slot].reference;
  of_others = batch.reference_of_others;
  const bool others_kept = of_others.size() == others.samples.size();
  if (kept && others_kept) return;
  const bool adapted = has_adapter(model_);
  if (!adapted && device_.is_meta()) {  // a plan, of a run whose references are kept
    of_others.assign(others.samples.size(), 0.0);
    return;
  }
  if (!adapted)
    throw ConfigError("objective.reference: adapter_off needs an adapter (lora), and there is none");
  ForwardContext context = step_context();
  context.kept_inputs = nullptr;
  context.training = false;
  const AdapterOff base(model_);
  if (!kept) answers_->reference = sums_over_ranks(batch, context, recovery);
  if (!others_kept) of_others = sums_over_ranks(others, context, recovery);
}

// The two answers of a row did not fit together. Returns whether they can go through the model one by one.
bool Trainer::pull_apart(OomRecovery& recovery) {
  if (answers_->apart || answers_->batch.sides == 1 || !ranks_.alone()) return false;
  answers_apart_ = true;
  answers_->keep_together(false);
  ForwardContext context = step_context();
  context.kept_inputs = nullptr;
  answers_->policy = sums_over_ranks(answers_->batch, context, recovery);
  return true;
}

// The slopes by which the log-probabilities are multiplied follow from these themselves. A head that is
// trained must know them when it computes the gradient of its weight: its log-probabilities are computed
// before.
Trainer::Begun Trainer::begin_with_answers(MicroBatch micro, const ForwardContext& context,
                                           const std::vector<int64_t>& slots) {
  micro.supervised_weights.reset();  // they are in the slopes
  if (!trains_head(model_)) {
    LossSum out = model_.loss(micro, context, {.log_probabilities = true});
    const at::Tensor gradient = answers_->gradient(slots, out.log_probabilities);
    return {out.log_probabilities, gradient, out};
  }
  const at::Tensor states = model_.supervised_states(micro, context);
  LossOptions options;
  options.chunk_rows = model_.chunk_rows(context);
  at::Tensor weights;
  {
    const at::NoGradGuard no_grad;
    LossOptions first = options;
    first.log_probabilities = true;
    const LossSum found = model_.head().loss(states.detach(), micro.supervised_labels, first);
    weights = answers_->gradient(slots, found.log_probabilities).neg();
  }
  LossSum out = model_.head().loss(states, micro.supervised_labels, options, weights);
  return {out.loss, at::ones_like(out.loss), out};
}

void Trainer::report_answers(StepResult& result) const {
  if (device_.is_meta()) return;
  const std::vector<double> own(answers_->sums.values.begin(), answers_->sums.values.end());
  const std::vector<double> all = all_reduce(ranks_, own);
  AnswerSums sums;
  std::ranges::copy(all, sums.values.begin());
  result.terms = answers_->means(sums);
  result.loss = result.terms.front().second;
  result.terms.erase(result.terms.begin());
}

}  // namespace trainer
