// Learning rate schedules, computed like transformers' get_scheduler and Adafactor's relative steps
// (transformers, optimization.py).
#pragma once

#include <cstdint>

#include "trainer/config/config.h"

namespace trainer {

class Schedule {
 public:
  Schedule(const OptimizerConfig& config, int64_t total_steps);
  // Returns the learning rate of update number `step`, counted from 0.
  double learning_rate(int64_t step) const;
  int64_t warmup_steps() const { return warmup_; }

 private:
  double factor(int64_t step) const;
  SchedulerType type_;
  double learning_rate_;
  int64_t warmup_, total_;
  bool relative_, warmup_init_;
};

}  // namespace trainer
