#include "trainer/memory/cache_watch.h"

#include <algorithm>

#include "trainer/memory/device_memory.h"

namespace trainer {
namespace {

constexpr int64_t kLeastExcess = int64_t{512} << 20, kLongestWait = 63;

bool holds_far_more(const CacheUse& cache) {
  return cache.held - cache.used >= std::max(kLeastExcess, cache.used / 4);
}

}  // namespace

bool CacheWatch::after_step(int64_t every, c10::Device device) {
  if (every == 0 || ++steps_ % every != 0) return false;
  if (!holds_far_more(look_at_cache(device))) {
    wait_ = left_ = 0;
    return false;
  }
  if (left_-- > 0) return false;
  left_ = wait_;
  wait_ = std::min(2 * wait_ + 1, kLongestWait);
  empty_cache(device);
  return true;
}

}  // namespace trainer
