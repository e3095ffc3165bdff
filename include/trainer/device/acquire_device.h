// Chooses the device of a run, and locks it so that waiting runs do not take it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "trainer/config/config.h"
#include "trainer/device/gpu_probe.h"

namespace trainer {

class GpuLock;

// A device and, for a GPU that no other run had locked, its lock. Released when the last copy is destroyed.
struct DeviceLease {
  c10::Device device = c10::kCPU;
  std::shared_ptr<const GpuLock> lock;
  // Runs that share a GPU start one after the other, so that each sees what the others have taken. Reset it
  // as soon as the run has the memory that it needs. Null: not a GPU, or its turn could not be awaited.
  std::shared_ptr<const GpuLock> start;
};

// The machine's functions that the choice needs; tests pass their own.
struct Machine {
  GpuProbe& gpus;
  std::function<std::string()> open_cuda;  // "" or why this program cannot use a GPU
  std::filesystem::path lock_directory;
  std::function<double()> seconds;              // a monotonic clock
  std::function<bool(double seconds)> sleep;    // false: interrupted
  std::function<void(const std::string&)> say;  // a line of the log
  std::function<void(const std::string&)> warn;
};
const Machine& this_machine();

// Chooses a device and returns it. `wanted` is "auto", "cpu", "cuda" or "cuda:N". Of the GPUs that qualify
// (gpu.min_gpu_memory_mb free) it takes the one with the most free memory; GPUs that another run has locked
// come last. With gpu.wait_for_gpu it looks again every gpu.gpu_check_interval_seconds, and logs a line each
// time, until a GPU qualifies that no other run has locked. A run that shares a GPU waits, for at most 10
// minutes, until no other run is starting on it. "auto" is the CPU only if no GPU can be used at
// all, and warns if there is one. Throws DeviceError (exit code 6), with each GPU's free memory and users, if
// no GPU qualifies, if none did in time, or if the wanted device does not exist. Throws Error with
// ExitCode::interrupted if a signal ends the waiting.
DeviceLease acquire_device(const std::string& wanted, const GpuConfig& config,
                           const Machine& machine = this_machine());

// Returns the best GPU other than `taken` that qualifies and that no other run has locked; nullopt if there
// is none.
std::optional<DeviceLease> acquire_other_gpu(c10::Device taken, const GpuConfig& config,
                                             const Machine& machine = this_machine());

// For programs that only need a choice: returns the GPU with the most free memory, taking other processes
// into account, if it has `min_free_bytes` free; otherwise the CPU.
c10::Device find_best_device(int64_t min_free_bytes = 0, const Machine& machine = this_machine());

}  // namespace trainer
