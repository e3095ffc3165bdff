// The evaluation of objectives that compare or judge answers, and the passes over a data set that it and the
// references of a run are made with.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trainer/training/evaluate.h"

#include "training/answers_passes.h"

namespace trainer {

// As evaluate(), for these objectives. The loss is a function of all rows: so is kto's divergence.
EvaluationResult evaluate_answers(Model& model, const Dataset& dataset, const Config& config,
                                  at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                  const std::function<void()>& between, const Ranks& ranks);

// Passes over a data set that give log-probabilities of whole answers under the model as it is. Several ranks
// divide the samples, and all get all sums.
struct DatasetPass {
  const Model& model;
  const Dataset& dataset;
  const Config& config;
  at::Device device;
  BatchBudget& budget;
  const RecoveryListener& listener;
  const std::function<void()>& between;  // called before each micro-batch
  const Ranks& ranks;
  SumOf of = SumOf::answer;

  // How many rows go through the model as one group. What is computed of a row does not depend on where a
  // pass begins, if that is a multiple of it.
  int64_t group() const { return 16 * config.eval_batch_size(); }
  // Dataset::sides() values of each row of [begin, end), row by row.
  std::vector<double> answers(int64_t begin, int64_t end) const;
  // Of the prompt of a row with the answer of another one.
  std::vector<double> others(std::span<const RowPair> pairs) const;
};

// Each row with the one before it, the first one with the last: kto's other answers in an evaluation.
std::vector<RowPair> rows_with_the_one_before(int64_t rows);

}  // namespace trainer
