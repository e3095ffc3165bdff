// Gives a GPU's cached memory back when there is much more of it than the run uses. Giving it back costs some
// 70 ms, in which the GPU waits, and what is used again is asked for anew.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace trainer {

// The memory that LibTorch's allocator of a GPU holds, in bytes, and the most of it that was in use at once
// since the last call. 0 on the CPU, where nothing is held that counts.
struct CacheUse {
  int64_t held = 0, used = 0;
};
CacheUse look_at_cache(c10::Device device);

class CacheWatch {
 public:
  // Call after each step of training, or micro-batch of an evaluation. After every `every` of them (0: never)
  // it gives the cache back if that holds at least 512 MiB and a quarter more than was used meanwhile. If
  // that is so again after a short while, giving it back helps little: then it waits, twice as long each
  // time. Returns whether it gave it back.
  bool after_step(int64_t every, c10::Device device);

 private:
  int64_t steps_ = 0;
  int64_t wait_ = 0, left_ = 0;  // looks to let pass: next time, and now
};

}  // namespace trainer
