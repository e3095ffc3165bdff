// The CUDA driver: the GPUs that this process sees, page-locked memory, and what to install if one of them
// is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

// The CUDA driver: which GPUs this process sees. Opened with dlopen; initialising it creates no context.

class DynamicLibrary;
const DynamicLibrary& cuda_library();

// What a call gives that the driver has no function for.
constexpr int kNoDriverFunction = -1;
// Returns what went wrong in a call of the driver, which gave `code`; "" if nothing did.
std::string driver_problem(int code, const char* what);

struct CudaDevice {
  std::string name;
  std::string uuid;  // 36 characters, without GPU- or MIG-
  int64_t total = 0;
  int major = 0, minor = 0;  // compute capability
  int processors = 0;        // SMs
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

// Memory of the host that cannot be paged out, and that GPUs read and write directly.

// Returns zeros, aligned to a page, that every GPU sees at the same address; nullptr when the driver refuses.
// `gpu`: the number of the GPU whose context is used.
void* allocate_pinned(size_t bytes, int gpu);
// Waits until no GPU uses it.
void free_pinned(void* data, int gpu);

// Advice for a LibTorch without its CUDA library, and for a GPU without the compiler of kernels.

// Says what to do. `torch` is the folder of the LibTorch in use, such as
// env/lib/python3.11/site-packages/torch; `has_setup` says whether the program was built in a source tree,
// which has scripts/setup.
std::string how_to_get_cuda(const std::filesystem::path& torch, bool has_setup);

// The same for NVRTC. `cuda` is the version of CUDA that LibTorch was built with: 13000 is 13.0.
std::string how_to_get_nvrtc(const std::filesystem::path& torch, bool has_setup, int cuda);

}  // namespace trainer
