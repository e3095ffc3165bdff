// Which device's code runs. A memory plan runs the real step on `meta` tensors, which have shapes and no
// values, on behalf of another device. So whoever does one thing on the CPU and another on a GPU asks for the
// target and never for tensor.is_cpu() or is_cuda(): else the plan of a GPU's run would be that of the CPU.
#pragma once

#include <c10/core/Device.h>

namespace trainer {

// The type of `device`; for meta that of the plan being made on this thread (without one: CPU).
c10::DeviceType target_of(c10::Device device);

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
