// Watches the steps for NaN, Inf and loss spikes (docs/reliability.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/metrics.h"
#include "trainer/formats/run_position.h"
#include "trainer/training/trainer.h"

#include "observe/file_sinks.h"

namespace trainer {

class NumericsMonitor {
 public:
  // Returns the file:line of each sample of a step, in the order of the batch.
  using Origins = std::function<std::vector<std::string>()>;

  // `file`: OUT/bad_steps.jsonl, created at the first bad step; "": none is written. `max_bad_steps`:
  // training.max_bad_steps. `from`: where the run resumes. Rows of later steps are removed, because those
  // steps are repeated. Throws FormatError when they cannot be removed.
  NumericsMonitor(std::filesystem::path file, int64_t max_bad_steps, const RunPosition& from = {});

  // Takes the result of a step. A step that was not applied is logged with the samples that caused it, and
  // the file gets a row with all of its samples; `origins` is called only then. A spike is logged, and `row`,
  // the row of the step, gets "spike": true. A loss is a spike if it is above 1.5 times the median of the
  // last 64 losses, and also above that median by 8 times their usual deviation (1.4826 x the median absolute
  // deviation). The first 20 losses are never spikes.
  void add(int64_t step, const StepResult& result, MetricRow& row, const Origins& origins);

  // Returns why the run has to end when max_bad_steps is reached, else nothing.
  std::optional<std::string> reason_to_end() const;

  // Writes the state into `position`, to resume from.
  void save(RunPosition& position) const;

 private:
  void remove_rows_after(int64_t step) const;
  void add_bad_step(int64_t step, const StepResult& result, const std::vector<std::string>& origins);
  std::optional<double> median_below_spike(double loss) const;

  std::filesystem::path file_;
  int64_t max_bad_steps_, bad_steps_in_a_row_;
  std::vector<double> recent_losses_;  // oldest first
  std::optional<JsonlSink> rows_;
};

}  // namespace trainer
