#include "trainer/memory/thrash_watch.h"

#include <utility>

#include <c10/core/CachingDeviceAllocator.h>

namespace trainer {

int64_t allocator_retries(c10::Device device) {
  if (!device.is_cuda()) return 0;
  return c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(device.index()).num_alloc_retries;
}

bool ThrashWatch::after_step() {
  constexpr int64_t kSteps = 3;
  const int64_t now = retries_();
  const bool grew = now > std::exchange(last_, now);
  steps_in_a_row_ = grew ? steps_in_a_row_ + 1 : 0;
  if (steps_in_a_row_ < kSteps) return false;
  steps_in_a_row_ = 0;
  return true;
}

}  // namespace trainer
