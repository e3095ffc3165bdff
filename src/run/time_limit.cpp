#include "run/time_limit.h"

#include <chrono>

namespace trainer {

constexpr double kHour = 3600;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TimeLimit::TimeLimit(double hours, std::function<double()> clock)
    : limit_(hours * kHour), clock_(std::move(clock)), begin_(clock_()) {}

bool TimeLimit::is_up(double seconds_to_come) const {
  return limit_ > 0 && clock_() - begin_ + seconds_to_come > limit_;
}

}  // namespace trainer
