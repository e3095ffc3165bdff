// A limit on the memory that a process takes on its device: for a machine shared with others, or to try on a
// large card whether a run fits a small one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// Bytes that a CUDA context and its libraries take in addition to tensors. They count within a limit given in
// bytes. An estimate: the driver does not report this to a process.
constexpr int64_t kCudaContextBytes = 512'000'000;

class MemoryLimit {
 public:
  // Takes a size, "18GB" (10^9), "16GiB" (2^30), "900MB" or "640kB", or a share from 0 to 1 of the memory
  // that is free on the device when the limit is applied: "0.95". "": the device's default, 0.95 on a GPU and
  // no limit on the CPU. Throws ConfigError, naming memory.limit, for any other text.
  static MemoryLimit parse(const std::string& text);

  // The limit if it was given as a size; nullopt otherwise.
  std::optional<int64_t> bytes() const { return bytes_; }

  // Bytes that the limit allows on this device now; nullopt: no limit.
  std::optional<int64_t> bytes_on(c10::Device device) const;

  // From now on allocations beyond the limit throw c10::OutOfMemoryError. CPU: sets the limit of
  // host_allocator.h, which must be installed. GPU: sets the memory fraction of LibTorch's caching allocator.
  // LibTorch reads it when CUDA is first used, so call this before the first tensor on a GPU (throws
  // DeviceError if it is too late). Returns bytes_on(device).
  std::optional<int64_t> apply(c10::Device device) const;

 private:
  std::optional<int64_t> bytes_;
  std::optional<double> share_;
};

// Returns the bytes that this process may use on the device: the limit that was applied, otherwise the memory
// of the GPU; nullopt on a CPU without a limit.
std::optional<int64_t> limit_in_force(c10::Device device);

// Returns the bytes that this process can still take: on a GPU, what is free plus what LibTorch keeps for
// reuse; on the CPU, what the machine or the container's cgroup can give without swapping.
int64_t free_memory(c10::Device device);

}  // namespace trainer
