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
#include "trainer/observe/jsonl_sink.h"
#include "trainer/training/trainer.h"

namespace trainer {

class NumericsMonitor {
 public:
  // The file:line of a step's samples, in the order of the batch.
  using Origins = std::function<std::vector<std::string>()>;

  // `file`: OUT/bad_steps.jsonl; the first bad step makes it. `max_bad_steps`: of the configuration. `from`:
  // where the run resumes; the rows of later steps are removed, because those steps are made again. Throws
  // FormatError when they cannot be.
  NumericsMonitor(std::filesystem::path file, int64_t max_bad_steps, const RunPosition& from = {});

  // Takes the result of a step. One that was not applied is logged, with the samples that caused it, and gets
  // a row in the file with all of its samples: only then are `origins` asked for. A spike is logged, and
  // `row` of the step gets "spike": true. A loss is a spike above 1.5 times the median of the last 64 losses,
  // and above it by 8 times their usual deviation (1.4826 x the median absolute deviation); none is before 20
  // losses.
  void add(int64_t step, const StepResult& result, MetricRow& row, const Origins& origins);

  // Why the run has to end, where max_bad_steps is reached.
  std::optional<std::string> reason_to_end() const;

  // Its state, to resume from.
  void save(RunPosition& position) const;

 private:
  void remove_rows_after(int64_t step) const;
  void add_bad_step(int64_t step, const StepResult& result, const std::vector<std::string>& origins);
  std::optional<double> median_below_spike(double loss) const;

  std::filesystem::path file_;
  int64_t max_bad_steps_, bad_steps_in_a_row_;
  std::vector<double> recent_losses_;  // the oldest first
  std::optional<JsonlSink> rows_;
};

}  // namespace trainer
