// What `trainer doctor` checks without a model: the program, the processor, memory, GPUs, the environment.
#pragma once

#include "trainer/device/gpu_probe.h"

#include "commands/checkup.h"
#include "commands/entry_points.h"

namespace trainer {

void check_program(Checkup& checkup);
void check_processor(Checkup& checkup, const Config& config);
void check_host_memory(Checkup& checkup);
void check_gpus(Checkup& checkup, const GpuSight& sight, const Config& config);
// Variables that the user has set.
void check_environment(Checkup& checkup, const DoctorOptions& options);

}  // namespace trainer
