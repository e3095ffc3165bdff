#include "observe/time_left.h"

#include <algorithm>
#include <numeric>

namespace trainer {
namespace {

constexpr size_t kSteps = 100;

// Multiples of `every` in (step, total].
int64_t multiples(int64_t every, int64_t step, int64_t total) {
  return every > 0 ? total / every - step / every : 0;
}

}  // namespace

void TimeLeft::add(const MetricRow& row) {
  if (row.kind == "train") {
    step_ = row.values.value("step", step_ + 1);
    // The first step is slower, because it allocates and compiles.
    if (++steps_seen_ == 2) steps_.clear();
    steps_.push_back(row_number(row.values, "step_seconds").value_or(0));
    if (steps_.size() > kSteps) steps_.pop_front();
  } else if (row.kind == "eval") {
    evaluation_ = row_number(row.values, "eval_seconds");
  } else if (row.kind == "save") {
    save_ = row_number(row.values, "seconds");
  }
}

std::optional<TimeLeft::Estimate> TimeLeft::estimate() const {
  if (outlook_.total_steps <= 0 || steps_.empty()) return std::nullopt;
  const double mean = std::accumulate(steps_.begin(), steps_.end(), 0.0) / static_cast<double>(steps_.size());
  if (mean <= 0) return std::nullopt;
  const int64_t total = outlook_.total_steps;
  Estimate left{mean * static_cast<double>(std::max<int64_t>(total - step_, 0))};
  int64_t evaluations = multiples(outlook_.evaluation_every, step_, total);
  if (outlook_.evaluation_every > 0 && total % outlook_.evaluation_every != 0 && step_ < total) evaluations++;
  if (evaluation_) left.seconds += *evaluation_ * static_cast<double>(evaluations);
  if (!evaluation_) left.evaluations = evaluations;
  left.seconds += save_.value_or(0) * static_cast<double>(multiples(outlook_.save_every, step_, total) + 1);
  return left;
}

}  // namespace trainer
