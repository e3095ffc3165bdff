#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainer {

Schedule::Schedule(const OptimizerConfig& config, int64_t total_steps)
    : type_(config.lr_scheduler_type),
      learning_rate_(config.learning_rate),
      warmup_(config.warmup_steps > 0
                  ? config.warmup_steps
                  : static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * config.warmup_ratio))),
      total_(total_steps),
      relative_(config.relative_step),
      warmup_init_(config.warmup_init) {}

double Schedule::factor(int64_t step) const {
  const double at = static_cast<double>(step), warmup = static_cast<double>(warmup_);
  if (type_ == SchedulerType::constant) return 1.0;
  if (step < warmup_) return at / std::max(1.0, warmup);
  const double progress = (at - warmup) / std::max<double>(1.0, static_cast<double>(total_ - warmup_));
  switch (type_) {
    case SchedulerType::constant:
    case SchedulerType::constant_with_warmup:
      return 1.0;
    case SchedulerType::linear:
      return std::max(0.0, 1.0 - progress);
    case SchedulerType::cosine:
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
    case SchedulerType::polynomial: {
      constexpr double end = 1e-7;  // transformers' lr_end, with power 1
      if (step > total_) return end / learning_rate_;
      return ((learning_rate_ - end) * (1 - progress) + end) / learning_rate_;
    }
    case SchedulerType::inverse_sqrt: {
      const double timescale = warmup_ > 0 ? warmup : 10000.0;
      const double shift = timescale - warmup;
      return 1.0 / std::sqrt((at + shift) / timescale);
    }
  }
  return 1.0;
}

double Schedule::learning_rate(int64_t step) const {
  if (!relative_) return learning_rate_ * factor(step);
  const double update = static_cast<double>(step + 1);  // Adafactor._get_lr
  return std::min(warmup_init_ ? 1e-6 * update : 1e-2, 1.0 / std::sqrt(update));
}

}  // namespace trainer
