// The CUDA driver: which GPUs this process sees. Opened by dlopen; initialising it opens no context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

class DynamicLibrary;
const DynamicLibrary& cuda_library();

struct CudaDevice {
  std::string name;
  std::string uuid;  // 36 characters, without GPU- or MIG-
  int64_t total = 0;
  int major = 0, minor = 0;  // compute capability
};

struct CudaDriver {
  std::vector<CudaDevice> devices;  // cuda:0, cuda:1, ...
  std::string why_none;             // not "": why there are none
  std::string version;              // the highest CUDA version that it runs: "13.0"
};
// Asked once: what CUDA_VISIBLE_DEVICES says afterwards no longer counts.
const CudaDriver& cuda_driver();

struct FreeMemory {
  int64_t free = 0, total = 0;
};
// Of a device, through a context that is given up again. nullopt when the driver refuses.
std::optional<FreeMemory> memory_by_context(int index);

}  // namespace trainer
