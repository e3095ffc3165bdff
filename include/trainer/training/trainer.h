// One optimizer step over an effective batch: the heart of the program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/memory/thrash_watch.h"
#include "trainer/models/model.h"
#include "trainer/optim/gradients.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/recovery.h"

namespace trainer {

struct StepResult {
  double loss = 0;       // mean over the supervised tokens of the step
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  // The loss or the norm is no finite number, and the weights and the optimizer's state are as they were.
  bool skipped = false;
  std::vector<double> sample_losses;  // where skipped: each sample alone, over its own supervised tokens
  std::vector<int64_t> cuts;          // samples of each micro-batch
  int64_t packed_budget = 0;          // the most tokens of a packed micro-batch (data/batching.h)
  int64_t recomputed_blocks = 0;      // that kept only their input
  int64_t retries = 0;                // how often memory did not suffice
};

class Attempts;
struct AttemptOptions;
struct Division;

class Trainer {
 public:
  // The model's trained parameters are those that require grad. Allocates gradients' bookkeeping and
  // optimizer state. `optimizer` makes another one than the configuration names.
  Trainer(const Config& config, Model& model, at::Device device, int64_t total_steps,
          const OptimizerFactory& optimizer = make_optimizer);

  // Sum of token losses / supervised tokens over the whole effective batch, however it is cut; then one
  // update. Where memory does not suffice, the step is done again in smaller micro-batches (`recovery` in the
  // configuration) and gives what it would have given cut like that from the start. Throws OutOfMemoryError
  // with a table of what takes the memory when nothing helps; has_whole_weights() then says whether the
  // weights are those of the last step. A step whose loss or gradient is not finite is counted, by the
  // schedule too, but not applied. `replay`: cuts as recorded, instead of those that the configuration gives.
  StepResult step(const EffectiveBatch& batch, const StepCuts* replay = nullptr);

  // Goes through a step as step() does, optimizer included, and changes nothing but the budget of the
  // micro-batches that follow.
  void rehearse(const EffectiveBatch& batch);

  // Model, optimizer and what comes after go on on another device, where they are after the last step; with
  // the configured size of micro-batches. Needs has_whole_weights(). When it throws for lack of memory there,
  // each tensor is whole on one of the devices; moving back, or elsewhere, loses nothing.
  void move_to(at::Device device);

  // Of the model as it is now. `between` is called before each micro-batch, and may throw to end it.
  EvaluationResult evaluate(const Dataset& dataset, const std::function<void()>& between = {});

  // Hears of each lack of memory, after it was logged.
  void on_recovery(RecoveryListener listener) { listener_ = std::move(listener); }
  BatchBudgets& budgets() { return budgets_; }
  // Another watch than that of the device's allocator.
  void set_thrash_watch(ThrashWatch watch) { thrash_watch_ = std::move(watch); }
  bool has_whole_weights() const { return !optimizer_->half_written(); }

  // Those that were not applied, too.
  int64_t steps_taken() const { return steps_; }
  // So many were made before, by an earlier start of the run.
  void set_steps_taken(int64_t steps) { steps_ = steps; }
  OptimizerSnapshot optimizer_state() const { return optimizer_->snapshot(); }
  // See Optimizer::restore().
  void restore_optimizer(OptimizerSnapshot saved, const std::string& where) {
    optimizer_->restore(std::move(saved), where);
  }
  const std::vector<TrainedParameter>& parameters() const { return parameters_; }

 private:
  AttemptOptions attempt_options(const std::string& stage);
  Division first_division(const EffectiveBatch& batch, const StepCuts* replay) const;
  void end_step(const EffectiveBatch& batch, const Division& division, Attempts& attempts,
                StepResult& result);
  void answer_thrashing(const EffectiveBatch& batch, Division division, Attempts& attempts);
  ForwardContext step_context() const;
  at::Tensor gradient_norm(Attempts& attempts) const;
  at::Tensor accumulate(const EffectiveBatch& batch, Division& division, Attempts& attempts);
  std::vector<double> losses_one_by_one(const EffectiveBatch& batch, Attempts& attempts) const;

  const Config& config_;
  Model& model_;
  at::Device device_;
  std::vector<TrainedParameter> parameters_;
  Gradients gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  int64_t steps_ = 0;
  at::Tensor anchor_;
  BatchBudgets budgets_;
  ThrashWatch thrash_watch_;
  RecoveryListener listener_;
};

}  // namespace trainer
