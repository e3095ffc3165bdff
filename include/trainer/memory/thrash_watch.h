// Notices thrashing: a device so full that the allocator gives its cache back and asks the driver anew in
// step after step. Nothing fails, but a step takes many times as long.
#pragma once

#include <cstdint>
#include <functional>

#include <c10/core/Device.h>

namespace trainer {

// How often LibTorch's allocator had to empty its cache and try again so far; 0 on the CPU.
int64_t allocator_retries(c10::Device device);

class ThrashWatch {
 public:
  // `retries`: a count that only grows, such as allocator_retries().
  explicit ThrashWatch(std::function<int64_t()> retries) : retries_(std::move(retries)) {}

  // After each step: true when it is the third in a row in which the count grew. Then it starts anew.
  bool after_step();

 private:
  std::function<int64_t()> retries_;
  int64_t last_ = 0, steps_in_a_row_ = 0;
};

}  // namespace trainer
