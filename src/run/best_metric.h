// Which evaluation of a run was the best, and how long ago (transformers, trainer_callback.py,
// EarlyStoppingCallback).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"

namespace trainer {

class BestMetric {
 public:
  // Uses training.metric_for_best_model and early_stopping_patience. `data` identifies the evaluation data.
  explicit BestMetric(const TrainingConfig& config, const std::string& data = "");

  // Returns whether this evaluation is better than all before it. Throws ConfigError when the evaluation does
  // not have the metric.
  bool add(const MetricRow& evaluation);

  // Returns whether early_stopping_patience evaluations in a row brought no improvement.
  bool patience_is_over() const { return patience_ > 0 && without_gain_ >= patience_; }

  const std::string& metric() const { return metric_; }  // "eval_loss"
  std::optional<double> value() const { return value_; }
  std::optional<int64_t> step() const { return step_; }

  // Writes the state into `position`, to resume from.
  void save(RunPosition& position) const;
  // Reads the state back. Returns false, and takes nothing, when it belongs to another metric or other data.
  bool restore(const RunPosition& position);

 private:
  std::string metric_, data_;
  bool lower_is_better_;
  int64_t patience_;
  std::optional<double> value_;
  std::optional<int64_t> step_;
  int64_t without_gain_ = 0;
};

}  // namespace trainer
