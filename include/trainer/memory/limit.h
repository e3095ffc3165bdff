// A limit on the memory that a process takes on its device: for a machine shared with others, or to try on a
// large card whether a run fits a small one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// Bytes that a CUDA context and its libraries take in addition to tensors. They count within a limit given in
// bytes. An estimate, for cards of consumers: the driver does not report this to a process. On an H200, with
// more multiprocessors than these, it was 790 to 820 MB (benchmarks/NOTES.md).
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
  // host_allocator.h, which must be installed. GPU: sets the memory fraction of LibTorch's caching allocator
  // for this GPU alone; it can be set again at any time. Returns bytes_on(device).
  std::optional<int64_t> apply(c10::Device device) const;

 private:
  std::optional<int64_t> bytes_;
  std::optional<double> share_;
};

// Lifts the limit of a GPU that is no longer used.
void lift_gpu_limit(c10::Device gpu);

// Call now and then, such as after each step. A limit that was given as a share is a share of what other
// processes leave free, which changes as they come, grow and go: computes it again, and applies it if it has
// changed by 5 % or more. Returns what changed, otherwise nullopt.
struct ChangedLimit {
  int64_t from, to;  // bytes
};
std::optional<ChangedLimit> follow_gpu_limit(c10::Device gpu);

// Returns the bytes that tensors may use on the device: the limit that was applied, otherwise the memory
// of the GPU; nullopt on a CPU without a limit.
std::optional<int64_t> limit_in_force(c10::Device device);

// Returns the bytes that this process can still take: on a GPU, what is free plus what LibTorch keeps for
// reuse; on the CPU, what the machine or the container's cgroup can give without swapping.
int64_t free_memory(c10::Device device);

// Returns the bytes that the whole process may use on the device, 0 if nothing limits it: limit_in_force(),
// on a GPU with the context that comes on top of the tensors.
int64_t process_limit(c10::Device device);

}  // namespace trainer
