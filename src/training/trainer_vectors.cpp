// Steps whose objective compares the vectors of texts (step_of_vectors.h).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/training/trainer.h"

#include "training/evaluate_labels.h"
#include "training/placement.h"
#include "training/step_of_vectors.h"

namespace trainer {

// Several ranks need the vectors of each other before any of them begins its passes. One alone finds them
// there, and only where it has more than one pass.
void Trainer::prepare_vectors(const EffectiveBatch& batch, OomRecovery& recovery) {
  vectors_ = std::make_unique<StepOfVectors>(config_.objective.similarity_scale, batch);
  if (ranks_.alone() || device_.is_meta()) return;
  weights_changed();  // a checkpoint may have been read
  ForwardContext context = step_context();
  context.kept_inputs = nullptr;
  std::vector<std::vector<double>> vectors;
  run_on_all_ranks(model_, ranks_, [&] {
    const at::NoGradGuard no_grad;
    MicroBatchSplit split = first_split(batch, nullptr);
    vectors = run_split(recovery, batch, split, budgets_.training, [&](PassProgress& at) {
      return scores_of_split({model_, config_, device_, context, random_key()}, batch, split, at);
    });
  });
  vectors_->compare(of_all_ranks(ranks_, vectors));
}

Trainer::Begun Trainer::begin_with_vectors(const MicroBatch& micro, const ForwardContext& context,
                                           const std::vector<int64_t>& slots) {
  const at::Tensor states = model_.supervised_states(micro, context);
  LossSum out;
  out.loss = at::zeros({}, states.options().requires_grad(false));
  if (states.is_meta()) return {states, at::empty_like(states), out};
  if (!vectors_->has_compared()) {  // all are in this micro-batch
    const at::Tensor values = states.detach().to(at::kCPU, at::kDouble).contiguous();
    std::vector<std::vector<double>> by_slot(slots.size());
    const double* next = values.const_data_ptr<double>();
    for (const int64_t slot : slots) {
      by_slot[static_cast<size_t>(slot)].assign(next, next + values.size(1));
      next += values.size(1);
    }
    vectors_->compare(by_slot);
  }
  return {states, vectors_->gradient(slots).to(states.device()), out};
}

}  // namespace trainer
