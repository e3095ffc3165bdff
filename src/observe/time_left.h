// An estimate of a run's remaining time, with evaluations and saves.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/base/metrics.h"

namespace trainer {

// Returns a number of the row; nothing if it is absent or null (a stored NaN).
inline std::optional<double> row_number(const nlohmann::ordered_json& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// The end of a run, and the work on the way to it.
struct RunOutlook {
  int64_t total_steps = 0;       // 0: not known
  int64_t evaluation_every = 0;  // steps; 0: never. The last step is evaluated as well
  int64_t save_every = 0;        // steps; 0: only at the end
};

class TimeLeft {
 public:
  void set_outlook(const RunOutlook& outlook) { outlook_ = outlook; }
  // Takes rows of kinds train, eval and save; ignores others.
  void add(const MetricRow& row);

  struct Estimate {
    double seconds = 0;
    int64_t evaluations = 0;  // still to come and not counted, because none has been made yet
  };
  // Estimates from the last steps, and the last evaluation and save; nothing before the first step.
  std::optional<Estimate> estimate() const;

 private:
  RunOutlook outlook_;
  int64_t step_ = 0, steps_seen_ = 0;
  std::deque<double> steps_;  // seconds of the last ones
  std::optional<double> evaluation_, save_;
};

}  // namespace trainer
