#include "run/watches.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr int64_t kStretch = 10;  // steps
constexpr size_t kFloors = 5;

constexpr int64_t kLeastSteps = 20;
constexpr double kLeastSeconds = 30, kTolerated = 0.1;

}  // namespace

constexpr double kHour = 3600;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TimeLimit::TimeLimit(double hours, std::function<double()> clock)
    : limit_(hours * kHour), clock_(std::move(clock)), begin_(clock_()) {}

bool TimeLimit::is_up(double seconds_to_come) const {
  return limit_ > 0 && clock_() - begin_ + seconds_to_come > limit_;
}

bool GrowthWatch::rises() const {
  for (size_t i = 1; i < floors_.size(); i++) {
    if (floors_[i].bytes <= floors_[i - 1].bytes + noise_) return false;
  }
  return true;
}

std::optional<Growth> GrowthWatch::add(int64_t step, int64_t bytes_in_use) {
  const int64_t at = seen_++ - skip_;
  if (warned_ || at < 0) return std::nullopt;
  if (at % kStretch == 0) {
    if (floors_.size() == kFloors) floors_.erase(floors_.begin());
    floors_.push_back({step, bytes_in_use});
  } else if (bytes_in_use < floors_.back().bytes) {
    floors_.back() = {step, bytes_in_use};
  }
  const bool is_complete = at % kStretch == kStretch - 1 && floors_.size() == kFloors;
  if (!is_complete || !rises()) return std::nullopt;
  warned_ = true;
  const Floor &first = floors_.front(), &last = floors_.back();
  return Growth{(last.bytes - first.bytes) / (last.step - first.step), first.step, last.step, first.bytes,
                last.bytes};
}

void MemoryWatch::add(const RunPosition& position, const MemorySummary& memory, OutputDirectory& output) {
  if (const auto growth = tensors_.add(position.step, memory.allocated))
    warn(position, "tensors", *growth, memory.limit, output);
  const int64_t outside = memory.device.is_cpu() ? memory.resident - memory.reserved : memory.resident;
  if (const auto growth = process_.add(position.step, outside)) warn(position, "process", *growth, 0, output);
}

void MemoryWatch::warn(const RunPosition& position, const char* what, const Growth& growth, int64_t limit,
                       OutputDirectory& output) {
  std::string text = concat("memory of the ", what, " grows by ", bytes_string(growth.bytes_per_step),
                            " a step: ", bytes_string(growth.from), " after step ", growth.first_step, ", ",
                            bytes_string(growth.to), " after step ", growth.last_step);
  if (limit > growth.to)
    text += concat("; at this rate it runs out in ", grouped((limit - growth.to) / growth.bytes_per_step),
                   " steps");
  log::warning(text + ". This is a bug: please report it with metrics.jsonl");
  output.write({"memory_growth",
                {{"step", position.step},
                 {"what", what},
                 {"bytes_per_step", growth.bytes_per_step},
                 {"first_step", growth.first_step},
                 {"last_step", growth.last_step},
                 {"from", growth.from},
                 {"to", growth.to}}});
}

std::string DataWatch::add(const StepSeconds& seconds, const Config& config) {
  if (std::exchange(is_first_step_, false) || warned_) return "";
  steps_++;
  sum_.all += seconds.all;
  sum_.data_wait += seconds.data_wait;
  if (steps_ < kLeastSteps || sum_.all < kLeastSeconds) return "";
  const double share = sum_.data_wait / sum_.all;
  const int64_t steps = std::exchange(steps_, 0);
  sum_ = {};
  if (share <= kTolerated) return "";
  warned_ = true;
  return concat("the last ", steps, " steps waited ", std::lround(100 * share),
                " % of their time for data. What helps: more training.num_workers (now ",
                config.training.num_workers, "), if processors are idle; more data.prefetch (now ",
                config.data.prefetch, "), if some steps have far longer samples than others; a faster disk");
}

}  // namespace trainer
