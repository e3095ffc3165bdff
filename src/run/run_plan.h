// The memory plan of a run that is about to begin, its comparison with what the run really uses, and what
// would make the run fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/training/plan.h"
#include "trainer/training/worst_batch.h"

namespace trainer {

struct RunPlan {
  Config config;  // with numbers in place of auto
  MemoryPlan plan;
  int64_t limit = 0;  // bytes; 0: none
  bool solved = false;

  bool known() const { return plan.num_blocks > 0; }

  // Returns the lines of the start block.
  std::vector<std::pair<std::string, std::string>> lines() const;
  // Returns the text for what is offloaded.
  std::string offloaded_text() const;
  // Returns whether the measured peak is more than 5 % above the planned one.
  bool exceeds_plan(int64_t measured) const;
  // A line for the log and a row of metrics, for after the first step. `measured`: peak of tensors in bytes.
  // `rank`: whose, if there are several.
  std::string compared(int64_t measured, std::optional<int64_t> rank = std::nullopt) const;
  MetricRow row(int64_t step, int64_t measured, std::optional<int64_t> rank = std::nullopt) const;
};

// Returns the lengths that a plan for the device needs, of the samples as they are after truncation.
SampleLengths sample_lengths(const Dataset& train, c10::DeviceType device);

// Returns the memory that a process may use on the device, in bytes: its limit, else nine tenths of what it
// has and of what is free there, because other programs and files need some. `sharers`: processes of the run
// that use the device, which all have as much of it; what is free is divided among them.
int64_t memory_for_run(c10::Device device, int64_t sharers = 1);

// Plans a run on `device`, under the memory limit that applies there. What the configuration leaves open is
// chosen for `most` bytes. Throws OutOfMemoryError when no such choice fits.
RunPlan plan_run(const Config& config, const PlanTarget& target, c10::Device device, int64_t most);

// Throws OutOfMemoryError when there is no room for what the plan offloads. The directory for the files must
// exist. `on_this_machine`: processes of the run on this machine, each with such a plan.
void check_room(const RunPlan& run, c10::Device device, int64_t on_this_machine = 1);

inline constexpr char kModelDidNotFit[] =
    "The model did not fit. What helps: a larger memory.limit, if the device has it; lora: {} and "
    "model.quantize: nf4, in place of training all weights; model.dtype: bf16; another device.";
// In place of it, above the measures of the plan.
inline constexpr char kModelNeedsMore[] =
    "The model did not fit. A larger memory.limit helps, if the device has it, or another device.";

// Returns a line break and lines with the measures that make this run fit, by its plan, and for which there
// is room; "" if there are none or if the plan fails, too. Never throws.
std::string advice_to_fit(const Config& config, const PlanTarget& target, c10::Device device);

// The same for a run in which micro-batches were split and blocks were recomputed as far as
// config.recovery allows.
std::string advice_after_retries(const Config& config, const PlanTarget& target, c10::Device device);

}  // namespace trainer
