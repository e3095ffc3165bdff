// Detects thrashing: the device is so full that in step after step the allocator gives back its cache and
// asks the driver again. Nothing fails, but a step takes many times as long.
#pragma once

#include <cstdint>
#include <functional>

#include <c10/core/Device.h>

namespace trainer {

// Returns how often LibTorch's allocator has had to empty its cache and try again; 0 on the CPU.
int64_t allocator_retries(c10::Device device);

class ThrashWatch {
 public:
  // `retries`: a count that only grows, such as allocator_retries().
  explicit ThrashWatch(std::function<int64_t()> retries) : retries_(std::move(retries)) {}

  // Call after each step. True if the count grew in this step and the two before it; then counting restarts.
  bool after_step();

 private:
  std::function<int64_t()> retries_;
  int64_t last_ = 0, steps_in_a_row_ = 0;
};

}  // namespace trainer
