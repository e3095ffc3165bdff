// What the CUDA driver and NVML say, as one list.
#pragma once

#include <functional>

#include "trainer/device/cuda_driver.h"

#include "device/nvml.h"

namespace trainer {

// The devices of the driver in its order, each with what NVML knows of the same UUID, then NVML's others.
// `ask_driver` is for a device that NVML tells nothing of.
GpuSight combine_sight(const CudaDriver& driver, const NvmlSight& nvml,
                       const std::function<std::optional<FreeMemory>(int index)>& ask_driver);

}  // namespace trainer
