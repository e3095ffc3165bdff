// The choice of each rank's device.
#pragma once

#include <string>

#include "trainer/base/rank_place.h"
#include "trainer/device/acquire_device.h"

namespace trainer {

// Returns what the process gives to acquire_device() in place of `wanted`. With others on its machine, that
// is "cuda:2" for the third of them, or "cuda:0" if each sees one GPU only (srun --gpus-per-task=1); `wanted`
// itself if it is alone there, on the CPU, and if there is no GPU. Throws DeviceError if the machine shows
// fewer GPUs than processes, and ConfigError if `wanted` is one GPU of several.
std::string device_of_rank(const std::string& wanted, const RankPlace& place,
                           const Machine& machine = this_machine());

// Returns which GPU acquire_device() would take for `device`, "NVIDIA H200 GPU-8a1f...", by the UUID that it
// has in every process; "" if it is none, and if it would choose among several.
std::string gpu_behind(const std::string& device, const Machine& machine = this_machine());

}  // namespace trainer
