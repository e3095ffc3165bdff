// training.max_hours: when a run has to save and end, so that it is done in time.
#pragma once

#include <functional>

namespace trainer {

// Seconds by a clock that is never set.
double steady_seconds();

// Counts from when it was made.
class TimeLimit {
 public:
  // 0: no limit.
  explicit TimeLimit(double hours, std::function<double()> clock = steady_seconds);

  // Whether what takes so many seconds more would end too late.
  bool is_up(double seconds_to_come) const;

 private:
  double limit_;  // seconds; 0: none
  std::function<double()> clock_;
  double begin_;
};

}  // namespace trainer
