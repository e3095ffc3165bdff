// NVIDIA's management library: every GPU of the machine, with other people's processes. Opened by dlopen; its
// C interface is documented at docs.nvidia.com/deploy/nvml-api.
#pragma once

#include <string>
#include <vector>

#include "trainer/device/gpu_probe.h"

namespace trainer {

struct NvmlSight {
  std::vector<Gpu> gpus;  // index is not set; a GPU that is divided by MIG appears as its instances
  std::string driver;     // version; "" where NVML is not there
};
NvmlSight look_with_nvml();

}  // namespace trainer
