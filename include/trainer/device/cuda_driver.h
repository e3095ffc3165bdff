// The CUDA driver: which GPUs this process sees. Opened with dlopen; initialising it creates no context.
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
  std::string why_none;             // why there are no devices; "" if there are
  std::string version;              // the highest CUDA version that the driver runs: "13.0"
};
// Asks the driver once; later changes of CUDA_VISIBLE_DEVICES have no effect.
const CudaDriver& cuda_driver();

struct FreeMemory {
  int64_t free = 0, total = 0;
};
// Returns the memory of a device, through a context that is released again; nullopt if the driver refuses.
std::optional<FreeMemory> memory_by_context(int index);

}  // namespace trainer
