// The evaluation of objectives that compare or judge answers, and the passes over a whole data set that it
// and the references of a run are made with.
#pragma once

#include <functional>
#include <vector>

#include "trainer/data/step_loader.h"
#include "trainer/training/evaluate.h"

#include "training/oom_recovery.h"

namespace trainer {

// As evaluate(), for these objectives. The loss is a function of all rows: so is kto's divergence.
EvaluationResult evaluate_answers(Model& model, const Dataset& dataset, const Config& config,
                                  at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                  const std::function<void()>& between, const Ranks& ranks);

// The log-probabilities of all answers of a data set under the model as it is.
struct DatasetSums {
  std::vector<double> answers;  // Dataset::sides() of each row, row by row
  std::vector<double> others;   // of each row with the answer of the row before it, if they are asked for
};
// `between` is called before each micro-batch. Several ranks divide the samples, and all get all sums.
DatasetSums sums_of_dataset(const Model& model, const Dataset& dataset, const Config& config,
                            at::Device device, bool with_others, BatchBudget& budget,
                            const RecoveryListener& listener, const std::function<void()>& between,
                            const Ranks& ranks);

// Parts of evaluate(): the indices of a data set in order, `size` at a time; and what is done when out of
// memory.
StepLoader::NextIndices groups_of(const Dataset& dataset, int64_t size);
OomRecovery recovery_of_evaluation(const Config& config, at::Device device, const RecoveryListener& listener);

}  // namespace trainer
