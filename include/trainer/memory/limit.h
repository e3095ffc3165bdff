// A bound on the memory that a process takes on its device: on a machine shared with others, or to try the
// run of a small card on a large one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// What a CUDA context and its libraries take beside tensors; counted within a limit given in bytes. An
// estimate: the driver tells no process its own share.
constexpr int64_t kCudaContextBytes = 512'000'000;

class MemoryLimit {
 public:
  // "18GB" (10^9), "16GiB" (2^30), "900MB", "640kB"; or a share from 0 to 1 of what is free on the device
  // when it is applied: "0.95". "": the device's default, 0.95 on a GPU and none on the CPU. Throws
  // ConfigError, naming memory.limit.
  static MemoryLimit parse(const std::string& text);

  // As it was given, where it was given as a size.
  std::optional<int64_t> bytes() const { return bytes_; }

  // Bytes that this allows there now; nullopt: no limit.
  std::optional<int64_t> bytes_on(c10::Device device) const;

  // From now on allocations beyond it throw c10::OutOfMemoryError. CPU: the limit of host_allocator.h, which
  // must be installed. GPU: the fraction of LibTorch's caching allocator, which it reads when CUDA is first
  // used: call this before the first tensor there (throws DeviceError when it is too late). Returns
  // bytes_on(device).
  std::optional<int64_t> apply(c10::Device device) const;

 private:
  std::optional<int64_t> bytes_;
  std::optional<double> share_;
};

// What bounds this process there: the limit that was applied, else the memory of the GPU; nullopt on a CPU
// without a limit.
std::optional<int64_t> limit_in_force(c10::Device device);

// Bytes that this process could still take: on a GPU what the driver has and what LibTorch keeps for reuse;
// on the CPU what the machine, or the container's cgroup, can give without swapping.
int64_t free_memory(c10::Device device);

}  // namespace trainer
