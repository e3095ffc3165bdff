#include "device/target_device.h"

#include <atomic>
#include <utility>

namespace trainer {
namespace {

thread_local c10::DeviceType planned_target = c10::kCPU;
std::atomic<bool> cpu_acts_as_gpu = false;

}  // namespace

c10::DeviceType target_of(c10::Device device) { return device.is_meta() ? planned_target : device.type(); }

bool runs_on_gpu(c10::Device device) {
  return device.is_cpu() ? cpu_acts_as_gpu.load() : target_of(device) != c10::kCPU;
}

CpuActsAsGpu::CpuActsAsGpu() : before_(cpu_acts_as_gpu.exchange(true)) {}
CpuActsAsGpu::~CpuActsAsGpu() { cpu_acts_as_gpu = before_; }

PlanningFor::PlanningFor(c10::DeviceType target) : before_(std::exchange(planned_target, target)) {}
PlanningFor::~PlanningFor() { planned_target = before_; }

}  // namespace trainer
