// What trainer_state.json tells of the steps so far (log_history), in Transformers' names.
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
  // A row every `logging_steps` steps, with the mean loss since the one before.
  explicit History(int64_t logging_steps) : logging_steps_(logging_steps) {}

  void add_step(const RunPosition& position, const StepResult& result);
  void add_evaluation(const MetricRow& evaluation);

  const nlohmann::ordered_json& rows() const { return rows_; }

  // Its state, to resume from: the rows are in trainer_state.json, what belongs to the next row in the
  // position.
  void save(RunPosition& position) const;
  void restore(nlohmann::ordered_json rows, const RunPosition& position);

 private:
  int64_t logging_steps_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  double losses_ = 0;  // since the last row
  int64_t steps_ = 0;
};

}  // namespace trainer
