// Computing on one thread.
#pragma once

#include <ATen/Parallel.h>

namespace trainer::test {

// For as long as this lives, products and loops that the calling thread begins run on it alone. Tests that
// make hundreds of steps of tiny models would otherwise mostly wake threads and wait for them.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace trainer::test
