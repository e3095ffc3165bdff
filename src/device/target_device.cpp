#include "device/target_device.h"

#include <utility>

namespace trainer {
namespace {

thread_local c10::DeviceType planned_target = c10::kCPU;

}  // namespace

c10::DeviceType target_of(c10::Device device) { return device.is_meta() ? planned_target : device.type(); }

PlanningFor::PlanningFor(c10::DeviceType target) : before_(std::exchange(planned_target, target)) {}
PlanningFor::~PlanningFor() { planned_target = before_; }

}  // namespace trainer
