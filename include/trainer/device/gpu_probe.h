// What is known of the machine's GPUs before anything is computed on them: how much memory each has free, and
// who uses the rest. No LibTorch, and no CUDA context where NVML answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

// A process that holds memory of a GPU.
struct GpuProcess {
  int64_t pid = 0;
  std::string name, user;        // "" where /proc does not tell, as from inside a container
  std::optional<int64_t> bytes;  // not always told
};

// A GPU, or a MIG instance of one.
struct Gpu {
  int index = -1;               // N of cuda:N; -1: hidden from this process by CUDA_VISIBLE_DEVICES
  std::string name, uuid;       // "NVIDIA H200", "GPU-..." or "MIG-..."
  int64_t free = 0, total = 0;  // bytes
  std::vector<GpuProcess> processes;
  int major = 0, minor = 0;  // compute capability; 0 where unknown
  std::string problem;       // not "": why nothing is known of its memory

  // "cuda:0 NVIDIA H200, 3.20 GB free of 141 GB (python3 of ann, process 4711: 138 GB)"
  std::string text() const;
};

struct GpuSight {
  std::vector<Gpu> gpus;     // those that CUDA shows by index, then hidden ones
  std::string why_none;      // not "": why CUDA shows none
  std::string driver, cuda;  // versions, "580.65.06" and "13.0"; "" where unknown

  std::vector<Gpu> visible() const;
};

class GpuProbe {
 public:
  virtual ~GpuProbe() = default;
  // The GPUs as they are now. Does not throw: what goes wrong is in the answer.
  virtual GpuSight look() = 0;
};

// This machine's, asked of the CUDA driver and NVML, both opened on the first look where they are installed.
// The driver says which GPUs this process sees, in which order (CUDA_VISIBLE_DEVICES with indices, UUIDs or
// MIG instances, CUDA_DEVICE_ORDER); NVML says, by UUID, what is free and who uses it. Where NVML is missing,
// the driver is asked, which takes a context on each GPU for the moment.
GpuProbe& system_gpus();

}  // namespace trainer
