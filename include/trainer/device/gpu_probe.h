// The state of the machine's GPUs before anything is computed on them: how much memory each has free, and who
// uses the rest. Uses no LibTorch, and no CUDA context if NVML answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

// A process that uses memory of a GPU.
struct GpuProcess {
  int64_t pid = 0;
  std::string name, user;        // "" if /proc does not show them, as inside a container
  std::optional<int64_t> bytes;  // not always known
};

// A GPU, or a MIG instance of one.
struct Gpu {
  int index = -1;               // N of cuda:N; -1: hidden from this process by CUDA_VISIBLE_DEVICES
  std::string name, uuid;       // "NVIDIA H200", "GPU-..." or "MIG-..."
  int64_t free = 0, total = 0;  // bytes
  std::vector<GpuProcess> processes;
  int major = 0, minor = 0;  // compute capability; 0: unknown
  std::string problem;       // why its memory is not known; "" if it is

  // "cuda:0 NVIDIA H200, 3.20 GB free of 141 GB (python3 of ann, process 4711: 138 GB)"
  std::string text() const;
};

struct GpuSight {
  std::vector<Gpu> gpus;     // those that CUDA shows, by index, then hidden ones
  std::string why_none;      // why CUDA shows no GPU; "" if it does
  bool fails = false;        // there is a driver, and it does not start
  std::string driver, cuda;  // versions, "580.65.06" and "13.0"; "" if unknown

  std::vector<Gpu> visible() const;
};

class GpuProbe {
 public:
  virtual ~GpuProbe() = default;
  // Returns the GPUs as they are now. Does not throw: the result says what went wrong.
  virtual GpuSight look() = 0;
};

// Asks the CUDA driver and NVML of this machine; both are opened on first use if they are installed. The
// driver says which GPUs this process sees and in which order (CUDA_VISIBLE_DEVICES with indices, UUIDs or
// MIG instances, CUDA_DEVICE_ORDER). NVML says, by UUID, what is free and who uses it. If NVML is missing,
// the driver is asked instead, which needs a context on each GPU for a moment.
GpuProbe& system_gpus();

}  // namespace trainer
