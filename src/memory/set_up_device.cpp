#include "memory/set_up_device.h"

#include <regex>

#include <ATen/ATen.h>
#include <c10/core/AllocatorConfig.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/oom.h"

#include "base/text.h"

namespace trainer {
namespace {

// LibTorch replaces all settings at once, so the others are repeated.
void turn_off_expandable_segments() {
  static const std::regex is_on("expandable_segments:[^,]*", std::regex::icase);
  const std::string settings = c10::CachingAllocator::getAllocatorSettings();
  c10::CachingAllocator::setAllocatorSettings(
      std::regex_replace(settings, is_on, "expandable_segments:False"));
}

}  // namespace

void settle_expandable_segments(const std::function<void()>& allocate) {
  if (!c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments()) return;
  std::string problem;
  try {
    return allocate();
  } catch (const c10::Error& error) {
    if (is_oom(error)) throw;
    problem = first_line(error.what_without_backtrace());
  }
  turn_off_expandable_segments();
  allocate();
  log::warning(concat("this driver cannot allocate in expandable segments (", problem,
                      "), so they are off in this run: memory is used less well. "
                      "memory.expandable_segments=false says so without this warning"));
}

void set_up_device(c10::Device device, const std::string& memory_limit, bool tf32) {
  const MemoryLimit limit = MemoryLimit::parse(memory_limit);
  if (device.is_cuda()) {
    use_tf32(tf32);
    settle_expandable_segments([&] { at::empty({1}, at::TensorOptions(at::kByte).device(device)); });
  }
  limit.apply(device);
}

}  // namespace trainer
