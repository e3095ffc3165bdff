// The device that a run takes, and keeps others from taking while it waits or works.
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

// A device, and for a GPU its lock where it was free. Given up when the last copy goes.
struct DeviceLease {
  c10::Device device = c10::kCPU;
  std::shared_ptr<const GpuLock> lock;
};

// What choosing needs of the machine; tests give their own.
struct Machine {
  GpuProbe& gpus;
  std::function<std::string()> open_cuda;  // "" or why this program cannot use a GPU
  std::filesystem::path lock_directory;
  std::function<double()> seconds;              // a clock that only goes on
  std::function<bool(double seconds)> sleep;    // false: interrupted
  std::function<void(const std::string&)> say;  // a line of the log
};
const Machine& this_machine();

// `wanted` is "auto", "cpu", "cuda" or "cuda:N". Of the GPUs that qualify (gpu.min_gpu_memory_mb free) the
// one with the most free memory, those that another run has locked last. With gpu.wait_for_gpu it looks again
// every gpu.gpu_check_interval_seconds, a line each time, until one qualifies that no other run has locked.
// "auto" is the CPU only where no GPU can be used at all. Throws DeviceError (exit code 6) with what each GPU
// has free and who uses it: none qualifies, or not in time; what was asked for is not there. Throws Error
// with ExitCode::interrupted when a signal ends the waiting.
DeviceLease acquire_device(const std::string& wanted, const GpuConfig& config,
                           const Machine& machine = this_machine());

// The best GPU besides `taken` that qualifies and no other run has locked; nullopt when there is none.
std::optional<DeviceLease> acquire_other_gpu(c10::Device taken, const GpuConfig& config,
                                             const Machine& machine = this_machine());

// For programs that want no more than an answer: the GPU with the most free memory, other processes counted,
// if it has `min_free_bytes`; else the CPU.
c10::Device find_best_device(int64_t min_free_bytes = 0, const Machine& machine = this_machine());

}  // namespace trainer
