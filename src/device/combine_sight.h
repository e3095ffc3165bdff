// Merges the GPU lists of the CUDA driver and NVML.
#pragma once

#include <functional>

#include "device/cuda_driver.h"
#include "device/nvml.h"

namespace trainer {

// Returns the driver's devices in its order, each with what NVML knows about the same UUID, then the GPUs
// that only NVML lists. `ask_driver` is called for a device that NVML does not know.
GpuSight combine_sight(const CudaDriver& driver, const NvmlSight& nvml,
                       const std::function<std::optional<FreeMemory>(int index)>& ask_driver);

}  // namespace trainer
