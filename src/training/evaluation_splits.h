// How an evaluation goes over a data set: group after group, each cut into micro-batches that fit.
#pragma once

#include <cstdint>
#include <utility>

#include "trainer/data/step_loader.h"
#include "trainer/models/model.h"
#include "trainer/training/evaluate.h"

#include "training/oom_recovery.h"

namespace trainer {

// The indices from `begin` to `end` in order, `size` at a time.
StepLoader::NextIndices groups_of(int64_t begin, int64_t end, int64_t size);

// What an evaluation does when it is out of memory.
OomRecovery recovery_of_evaluation(const Config& config, at::Device device, const RecoveryListener& listener);

// What the passes over all groups share. The arguments must outlive it.
class EvaluationSplits {
 public:
  EvaluationSplits(const Model& model, const Config& config, at::Device device, BatchBudget& budget,
                   const RecoveryListener& listener);

  // Cuts the group into micro-batches of eval_batch_size, or of as many samples as have fit so far, and
  // returns work(split, progress), which goes over them. When out of memory, it starts again with smaller
  // ones.
  template <class Work>
  auto run(const EffectiveBatch& group, const Work& work) {
    OomRecovery recovery = recovery_of_evaluation(config_, device_, listener_);
    split_.limits.halvings = budget_.halvings;
    split_by_limits(group, split_);
    auto found = run_split(recovery, group, split_, budget_,
                           [&](PassProgress& at) { return work(std::as_const(split_), at); });
    if (recovery.retries() == 0) budget_.succeeded(config_.recovery.grow_after);
    return found;
  }

 private:
  const Config& config_;
  at::Device device_;
  BatchBudget& budget_;
  const RecoveryListener& listener_;
  MicroBatchSplit split_;
};

}  // namespace trainer
