// The log_history of trainer_state.json: what happened so far, with the names that Transformers uses.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "trainer/base/metrics.h"
#include "trainer/formats/run_position.h"
#include "trainer/run/run_length.h"
#include "trainer/training/trainer.h"

namespace trainer {

class History {
 public:
  // Adds a row every `logging_steps` steps, with the mean loss since the previous row.
  explicit History(int64_t logging_steps) : logging_steps_(logging_steps) {}

  void add_step(const RunPosition& position, const StepResult& result);
  void add_evaluation(const MetricRow& evaluation);

  const nlohmann::ordered_json& rows() const { return rows_; }

  // Saves and restores the state, to resume from. The rows are in trainer_state.json; the losses that belong
  // to the next row are in the position.
  void save(RunPosition& position) const;
  void restore(nlohmann::ordered_json rows, const RunPosition& position);

 private:
  int64_t logging_steps_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  double losses_ = 0;  // since the last row
  int64_t steps_ = 0;
};

}  // namespace trainer
