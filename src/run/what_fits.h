// What would make a run fit on its device.
#pragma once

#include <string>

#include <c10/core/Device.h>

#include "trainer/config/config.h"
#include "trainer/training/plan.h"

namespace trainer {

inline constexpr char kModelDidNotFit[] =
    "The model did not fit. What helps: a larger memory.limit, if the device has it; lora: {}; model.dtype: "
    "bf16; another device.";
// In place of it, above the measures of the plan.
inline constexpr char kModelNeedsMore[] =
    "The model did not fit. A larger memory.limit helps, if the device has it, or another device.";

// Returns a line break and lines with the measures that make this run fit, by its plan, and for which there
// is room; "" if there are none or if the plan fails, too. Never throws.
std::string measures_to_fit(const Config& config, const PlanTarget& target, c10::Device device);

// The same for a run in which micro-batches were split and blocks were recomputed as far as
// config.recovery allows.
std::string measures_after_retries(const Config& config, const PlanTarget& target, c10::Device device);

}  // namespace trainer
