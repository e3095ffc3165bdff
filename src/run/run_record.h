// What a run remembers of its steps beside the weights: where it stands, its history, its best evaluation.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/formats/trainer_state.h"
#include "trainer/run/best_metric.h"
#include "trainer/run/history.h"
#include "trainer/run/progress.h"

#include "run/step_numbers.h"

namespace trainer {

class RunRecord {
 public:
  // `begin`: where the run begins or goes on; `history`: what the checkpoint that it goes on from tells.
  RunRecord(const Config& config, const RunLength& length, const RunPosition& begin,
            const nlohmann::ordered_json& history);

  Position position;
  History history;
  BestMetric best;
  StepNumbers numbers;
  bool evaluation_due = false;  // the one after the last step was not made, or not to its end

  // After each step.
  void advance(const EffectiveBatch& batch);

  // As they are now, to be saved. metrics_bytes: of metrics.jsonl.
  RunPosition to_position(int64_t metrics_bytes, const std::map<std::string, int64_t>& budgets) const;
  TrainerState to_trainer_state(const std::filesystem::path& output_dir) const;

  const RunLength& length() const { return length_; }
  bool is_last() const { return position.step >= length_.total_steps; }
  double seconds_trained() const;  // over all processes

 private:
  const Config& config_;
  RunLength length_;
  std::map<std::string, std::string> fixed_;
  std::string began_from_;
  double seconds_before_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// Where a run stands that was saved there.
Position position_of(const RunPosition& saved);

}  // namespace trainer
