// Stands in for a GPU's kernels: nothing is computed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "device/kernels.h"

namespace trainer::test {

// Writes down which kernels are started while it lives, and may run out of memory.
class StartedKernels : public Kernels {
 public:
  StartedKernels() {
    set_kernels_for_cpu([this](const KernelFile&, const std::string&) { return this; });
  }
  ~StartedKernels() override { set_kernels_for_cpu({}); }

  std::vector<std::string> take_started() { return std::exchange(started_, {}); }
  void fail_next_but(size_t launches) { until_failure_ = launches + 1; }

 protected:
  void launch(const char* function, const KernelGrid&, std::span<const KernelArgument>) const override {
    if (until_failure_ > 0 && --until_failure_ == 0) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
    started_.emplace_back(function);
  }

 private:
  mutable std::vector<std::string> started_;
  mutable size_t until_failure_ = 0;
};

}  // namespace trainer::test
