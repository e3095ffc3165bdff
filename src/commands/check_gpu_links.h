// What `trainer doctor --gpus` checks: how GPUs, and processes, reach each other.
#pragma once

#include <optional>

#include "trainer/config/config.h"
#include "trainer/device/gpu_probe.h"

#include "commands/checkup.h"

namespace trainer {

// With the configuration of a run, also says what the connections mean for one of its steps.
void check_gpu_links(Checkup& checkup, const GpuSight& sight, const std::optional<Config>& config);

}  // namespace trainer
