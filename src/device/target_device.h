// The device whose code runs. A memory plan runs the real step for another device on `meta` tensors, which
// have shapes but no values. So code that differs between CPU and GPU asks for the target, never for
// tensor.is_cpu() or is_cuda(): otherwise the plan of a GPU run would be that of a CPU run.
#pragma once

#include <c10/core/Device.h>

namespace trainer {

// Returns the type of `device`; for meta, the target of this thread's memory plan (CPU if there is none).
c10::DeviceType target_of(c10::Device device);

// Returns whether operators run their form for a GPU there: on a GPU, and on meta in the plan of one.
bool runs_on_gpu(c10::Device device);

// While it lives, CPU tensors count as a GPU's in runs_on_gpu(): tests run kernels on them.
class CpuActsAsGpu {
 public:
  CpuActsAsGpu();
  ~CpuActsAsGpu();
  CpuActsAsGpu(const CpuActsAsGpu&) = delete;
  CpuActsAsGpu& operator=(const CpuActsAsGpu&) = delete;

 private:
  bool before_;
};

// While it lives, meta tensors of this thread stand for tensors on `target`.
class PlanningFor {
 public:
  explicit PlanningFor(c10::DeviceType target);
  ~PlanningFor();
  PlanningFor(const PlanningFor&) = delete;
  PlanningFor& operator=(const PlanningFor&) = delete;

 private:
  c10::DeviceType before_;
};

}  // namespace trainer
