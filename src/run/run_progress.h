// The state of a run besides its tensors: position, history, best evaluation, and the watch for bad numbers.
// It is saved in checkpoints and restored from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/formats/run_position.h"
#include "trainer/run/run_length.h"

#include "formats/trainer_state.h"
#include "run/best_metric.h"
#include "run/history.h"
#include "run/numerics_monitor.h"

namespace trainer {

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
  // budgets: what recovery has learned (saved_budgets.h).
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
