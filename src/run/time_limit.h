// training.max_hours: decides when a run has to save and end, so that it finishes in time.
#pragma once

#include <functional>

namespace trainer {

// Returns seconds of a monotonic clock.
double steady_seconds();

// Counts from its construction.
class TimeLimit {
 public:
  // 0: no limit.
  explicit TimeLimit(double hours, std::function<double()> clock = steady_seconds);

  // Returns whether work of this many seconds, begun now, would end too late.
  bool is_up(double seconds_to_come) const;

 private:
  double limit_;  // seconds; 0: none
  std::function<double()> clock_;
  double begin_;
};

}  // namespace trainer
