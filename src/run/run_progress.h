// The state of a run besides its tensors: position, history, best evaluation, and the watch for bad numbers.
// It is saved in checkpoints and restored from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/formats/run_position.h"
#include "trainer/run/run_length.h"
#include "trainer/training/trainer.h"

#include "formats/trainer_state.h"
#include "run/numerics_monitor.h"

namespace trainer {

// The log_history of trainer_state.json: what happened so far, with the names that Transformers uses. A run
// may have millions of steps, and every checkpoint has its history, so at most kMostSteps rows of steps and
// kMostEvaluations rows of evaluations are kept. When there are more, every second row is left out, and later
// ones come as far apart; metrics.jsonl has all of them.
class History {
 public:
  static constexpr int64_t kMostSteps = 2000, kMostEvaluations = 1000;  // even

  // Adds a row every `logging_steps` steps, or as far apart as rows are by now, with the mean loss since the
  // previous row.
  explicit History(int64_t logging_steps) : logging_steps_(logging_steps) {}

  void add_step(const RunPosition& position, const StepResult& result);
  void add_evaluation(const MetricRow& evaluation);

  const nlohmann::ordered_json& rows() const { return rows_; }

  // Saves and restores the state, to resume from. The rows are in trainer_state.json, and tell how far apart
  // they are; the losses that belong to the next row are in the position.
  void save(RunPosition& position) const;
  void restore(nlohmann::ordered_json rows, const RunPosition& position);

 private:
  // The rows of one kind: how many there are, the steps of the last two, and the least distance between two.
  // All of it follows from the rows.
  struct Kept {
    int64_t most = 0;
    int64_t count = 0, last = 0, before = 0;
    int64_t least = INT64_MAX;  // without that of the last two

    void add(int64_t step);
    // Returns how far apart rows come. Once rows were left out, at least half of the most stay.
    int64_t distance() const { return count >= most / 2 && least < INT64_MAX ? least : 0; }
  };
  static bool is_evaluation(const nlohmann::ordered_json& row);
  Kept kept_in_rows(bool of_evaluations) const;
  void thin(bool evaluations);
  void drop_last_evaluation();

  int64_t logging_steps_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  Kept steps_kept_{.most = kMostSteps}, evaluations_kept_{.most = kMostEvaluations};
  double losses_ = 0;  // since the last row
  int64_t steps_ = 0;
};

// The best evaluation so far, and early stopping (transformers, trainer_callback.py, EarlyStoppingCallback).
class BestMetric {
 public:
  // Uses training.metric_for_best_model and early_stopping_patience. `data` identifies the evaluation data.
  explicit BestMetric(const TrainingConfig& config, const std::string& data = "");

  // Returns whether this evaluation is better than all before it. Throws ConfigError when the evaluation does
  // not have the metric.
  bool add(const MetricRow& evaluation);

  // Takes the best of the evaluations in `history` (log_history) whose checkpoint `is_there`; none: forgets
  // the value and the step.
  void choose(const nlohmann::ordered_json& history, const std::function<bool(int64_t step)>& is_there);

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
  bool is_better(double value) const;

  std::string metric_, data_;
  bool lower_is_better_;
  int64_t patience_;
  std::optional<double> value_;
  std::optional<int64_t> step_;
  int64_t without_gain_ = 0;
};

// Returns the checkpoint of a step of this run: in `output_dir`, or where the checkpoint lies from which the
// run began. "" if it is gone.
std::filesystem::path kept_checkpoint(const std::filesystem::path& output_dir, const RunPosition& position,
                                      int64_t step);

class RunProgress {
 public:
  // `from`: where the run begins or resumes; `history`: log_history of the checkpoint that it resumes from.
  // `writes`: whether bad steps get rows in bad_steps.jsonl. Throws FormatError when later rows cannot be
  // removed from it.
  RunProgress(const Config& config, const RunLength& length, const RunPosition& from = {},
              const nlohmann::ordered_json& history = nlohmann::ordered_json::array(), bool writes = true);

  RunPosition position;  // step, samples, tokens, evaluation_due; all of it: to_position()
  History history;
  BestMetric best;
  NumericsMonitor numerics;

  // After each step.
  void advance(const EffectiveBatch& batch);

  // Return the content of trainer_position.json and trainer_state.json. metrics_bytes: size of metrics.jsonl;
  // budgets: what recovery has learned (saved_splits.h).
  RunPosition to_position(int64_t metrics_bytes, const std::map<std::string, int64_t>& budgets) const;
  TrainerState to_trainer_state(const std::filesystem::path& output_dir) const;

  const RunLength& length() const { return length_; }
  // Returns whether nothing is left to train: after the last step, or when early stopping ends the run.
  bool is_over() const { return is_last_step() || best.patience_is_over(); }
  bool is_last_step() const { return position.step >= length_.total_steps; }

 private:
  const Config& config_;
  RunLength length_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace trainer
