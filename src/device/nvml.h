// NVIDIA's management library: every GPU of the machine, with other users' processes. Opened with dlopen; its
// C interface is documented at docs.nvidia.com/deploy/nvml-api.
#pragma once

#include <string>
#include <vector>

#include "trainer/device/gpu_probe.h"

namespace trainer {

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

}  // namespace trainer
