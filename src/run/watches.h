// Watches between the steps of a run: the time, memory that grows, and steps that wait for data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/memory/summary.h"
#include "trainer/run/metric_rows.h"

#include "run/output_directory.h"

namespace trainer {

// Returns seconds of a monotonic clock.
double steady_seconds();

// training.max_hours: decides when a run has to save and end, so that it finishes in time. Counts from its
// construction.
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

// Memory use that grows from step to step, as with a leak.
struct Growth {
  int64_t bytes_per_step = 0;
  int64_t first_step = 0, last_step = 0;  // the steps between which it was seen
  int64_t from = 0, to = 0;               // bytes in use at these steps
};

// Looks at the memory in use after each step, in groups of ten steps. The lowest value of a group is its
// floor, which does not depend on the lengths of the samples. Five floors in a row that each rise by more
// than the noise count as growth.
class GrowthWatch {
 public:
  // noise: bytes by which a floor may rise in ten steps without counting. skip: steps at the start, while
  // caches fill, that are ignored.
  explicit GrowthWatch(int64_t noise, int64_t skip = 10) : noise_(noise), skip_(skip) {}

  // Call after each step. Returns the growth once, when it is detected; otherwise nullopt.
  std::optional<Growth> add(int64_t step, int64_t bytes_in_use);

 private:
  struct Floor {
    int64_t step, bytes;
  };
  bool rises() const;

  int64_t noise_, skip_, seen_ = 0;
  std::vector<Floor> floors_;  // the last one belongs to the current group
  bool warned_ = false;
};

// Detects memory that grows during a run. It warns once, with the growth per step.
class MemoryWatch {
 public:
  // To be called after each step. Logs a warning and writes a row of kind memory_growth.
  void add(const RunPosition& position, const MemorySummary& memory, OutputDirectory& output);

 private:
  void warn(const RunPosition& position, const char* what, const Growth& growth, int64_t limit,
            OutputDirectory& output);

  // A step leaves as many tensors as it found, except for small ones.
  GrowthWatch tensors_{/*noise=*/200'000};
  // Everything else in the process. The caches of libraries fill up for a while.
  GrowthWatch process_{/*noise=*/16'000'000, /*skip=*/200};
};

// Warns once when steps wait for their data, and says what to do.
class DataWatch {
 public:
  // To be called after each step. Returns a warning when the last steps spent more than a tenth of their time
  // waiting for data, else "".
  std::string add(const StepSeconds& seconds, const Config& config);

 private:
  bool is_first_step_ = true;  // its data could not be prepared ahead
  bool warned_ = false;
  int64_t steps_ = 0;
  StepSeconds sum_;
};

}  // namespace trainer
