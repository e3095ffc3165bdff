#include "device/pinned_memory.h"

#include <cstring>

#include "base/dynamic_library.h"
#include "device/cuda_driver.h"

namespace trainer {
namespace {

constexpr int kNoFunction = -1;
constexpr unsigned kForAllContexts = 1, kMapped = 2;  // CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP

template <class... Arguments>
int driver_result(const char* name, Arguments... arguments) {
  return cuda_library().call(kNoFunction, name, arguments...);
}

// Calls `work` in the GPU's primary context, which LibTorch uses too. Returns its result, or that of a call
// that failed before.
template <class Work>
int in_context_of(int gpu, const Work& work) {
  int device = 0;
  void *context = nullptr, *popped = nullptr;
  if (const int failed = driver_result("cuDeviceGet", &device, gpu); failed != 0) return failed;
  if (const int failed = driver_result("cuDevicePrimaryCtxRetain", &context, device); failed != 0)
    return failed;
  int result = driver_result("cuCtxPushCurrent_v2", context);
  if (result == 0) {
    result = work();
    driver_result("cuCtxPopCurrent_v2", &popped);
  }
  driver_result("cuDevicePrimaryCtxRelease_v2", device);
  return result;
}

}  // namespace

void* allocate_pinned(size_t bytes, int gpu) {
  void* data = nullptr;
  const int failed = in_context_of(
      gpu, [&] { return driver_result("cuMemHostAlloc", &data, bytes, kForAllContexts | kMapped); });
  if (failed != 0 || data == nullptr) return nullptr;
  return std::memset(data, 0, bytes);
}

void free_pinned(void* data, int gpu) {
  in_context_of(gpu, [&] { return driver_result("cuMemFreeHost", data); });
}

}  // namespace trainer
