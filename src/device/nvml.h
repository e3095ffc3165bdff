// NVML, NVIDIA's management library: queries about the GPUs of the machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/device/gpu_probe.h"

#include "device/cuda_driver.h"

namespace trainer {

// NVIDIA's management library: every GPU of the machine, with other users' processes. Opened with dlopen; its
// C interface is documented at docs.nvidia.com/deploy/nvml-api.

struct NvmlSight {
  std::vector<Gpu> gpus;  // index is not set; a GPU with MIG appears as its instances
  std::string driver;     // version; "" if NVML is missing
};
NvmlSight look_with_nvml();

// Returns the driver's version, "580.65.06"; "" if NVML is missing.
std::string nvml_driver_version();

// Returns what lies between two GPUs, named by their UUIDs: "NVLink", "one PCIe switch"; "" if it is not
// known.
std::string path_between(const std::string& uuid, const std::string& other);

// Merges the GPU lists of the CUDA driver and NVML.

// Returns the driver's devices in its order, each with what NVML knows about the same UUID, then the GPUs
// that only NVML lists. `ask_driver` is called for a device that NVML does not know.
GpuSight combine_sight(const CudaDriver& driver, const NvmlSight& nvml,
                       const std::function<std::optional<FreeMemory>(int index)>& ask_driver);

}  // namespace trainer
