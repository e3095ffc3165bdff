// The evaluation of heads that score texts, and what such a head gives the texts of a batch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/training/evaluate.h"

#include "training/evaluation_splits.h"

namespace trainer {

// As evaluate(), for objectives whose rows have labels.
EvaluationResult evaluate_labels(Model& model, const Dataset& dataset, const Config& config,
                                 at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                 const std::function<void()>& between, const Ranks& ranks);
// The same for vectors of texts: of as many rows at once as a step has.
EvaluationResult evaluate_vectors(Model& model, const Dataset& dataset, const Config& config,
                                  at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                  const std::function<void()>& between, const Ranks& ranks);

// What a pass of texts needs.
struct ScorePass {
  const Model& model;
  const Config& config;
  at::Device device;
  ForwardContext context = {};
  uint64_t random_key = 0;                 // of dropout (CollateOptions)
  std::function<void()> before_each = {};  // called before each micro-batch; it may throw
};

// Returns the head's outputs by slot, of each label one after the other; nothing for slots that are not in
// the split, and on `meta`.
std::vector<std::vector<double>> scores_of_split(const ScorePass& pass, const EffectiveBatch& batch,
                                                 const MicroBatchSplit& split, PassProgress& at);
// Returns those of all ranks, which are as long for each slot.
std::vector<std::vector<double>> of_all_ranks(const Ranks& ranks,
                                              const std::vector<std::vector<double>>& by_slot);

// Passes over batches of an evaluation.
class ScorePasses {
 public:
  // The arguments must outlive it. `between` is called before each micro-batch.
  ScorePasses(const Model& model, const Config& config, at::Device device, BatchBudget& budget,
              const RecoveryListener& listener, const std::function<void()>& between);

  // Returns scores_of_split() of this rank's share. When out of memory, it starts again with a smaller split.
  std::vector<std::vector<double>> scores(const EffectiveBatch& batch);

 private:
  ScorePass pass_;
  EvaluationSplits splits_;
};

// Returns the shares of the classes that these outputs mean (softmax).
std::vector<double> probabilities_of(const std::vector<double>& outputs);

// Scores of predicted classes and numbers, as scikit-learn and SciPy define them.

// `rows`: [label][prediction]. F1 of a class without a row and a prediction is 0.
Confusion confusion_of(const std::vector<std::string>& classes, std::vector<std::vector<int64_t>> rows);
// The mean of the F1 of those classes that have a row or a prediction.
double macro_f1(const Confusion& confusion);
// 0 if one of the two is constant.
double pearson(const std::vector<double>& a, const std::vector<double>& b);
// pearson() of the ranks; equal values share the mean of theirs.
double spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace trainer
