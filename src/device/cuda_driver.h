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
  bool fails = false;               // there is a driver, and it does not start
  std::string version;              // the highest CUDA version that the driver runs: "13.0"
  int cuda = 0;                     // the same as a number, as CUDA gives it: 13000; 0: not known
};
// Asks the driver once; later changes of CUDA_VISIBLE_DEVICES have no effect.
const CudaDriver& cuda_driver();

// Returns why a driver that runs CUDA up to `driver_cuda` is too old for libraries of CUDA `needed_cuda`
// (13000: CUDA 13.0), and what to install; "" if it is not, or if one of the numbers is 0. `driver`: its
// version, "535.104.05"; may be empty. A driver runs everything that was made for its own major version of
// CUDA.
std::string why_too_old(int driver_cuda, int needed_cuda, const std::string& driver);

struct FreeMemory {
  int64_t free = 0, total = 0;
};
// Returns the memory of a device, through a context that is released again; nullopt if the driver refuses.
std::optional<FreeMemory> memory_by_context(int index);

}  // namespace trainer
