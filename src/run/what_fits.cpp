#include "run/what_fits.h"

#include <algorithm>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/memory/limit.h"

#include "memory/offload.h"
#include "run/run_plan.h"
#include "training/measures.h"

namespace trainer {

// What may be offloaded: what is offloaded already, and what there is room for.
static int64_t room_of_run(const Config& config, c10::Device device) {
  try {
    return offload_use().in_use + room_below(device, config.offload_directory());
  } catch (const FormatError&) {  // it is not known
    return std::numeric_limits<int64_t>::max();
  }
}

std::string measures_to_fit(const Config& config, const PlanTarget& target, c10::Device device) {
  const std::string text =
      what_would_fit(config, config.model.path, target, memory_for_run(device), room_of_run(config, device));
  return text.empty() ? "" : "\n" + text;
}

std::string measures_after_retries(const Config& config, const PlanTarget& target, c10::Device device) {
  Config smallest = config;
  smallest.training.effective_batch_size = config.effective_batch_size();
  smallest.training.gradient_accumulation_steps.reset();
  smallest.training.batch_size =
      std::min<int64_t>(config.training.batch_size, config.recovery.min_batch_size);
  smallest.memory.gradient_checkpointing = true;
  return measures_to_fit(smallest, target, device);
}

}  // namespace trainer
