// Metrics that training reports, and the sinks that receive them. `training` writes rows; `observe`
// implements the sinks.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace trainer {

// One row of metrics.jsonl: its kind (train, eval, memory, recovery, save) and its values in the order given.
struct MetricRow {
  std::string kind;
  nlohmann::ordered_json values;
};

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(const MetricRow& row) = 0;
  // Is called after write() with an evaluation that is better than all before it.
  virtual void write_best(const MetricRow& /*evaluation*/) {}
};

}  // namespace trainer
