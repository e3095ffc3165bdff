// For tests that need a GPU: GTEST_SKIP if there is none.
#pragma once

#include <string>

#include <ATen/ATen.h>

#include "trainer/device/device.h"
#include "trainer/device/kernels.h"

namespace trainer::test {

// "" where there is one with kernels of ours.
inline std::string why_no_gpu(const KernelFile& file, const std::string& definitions) {
  if (!open_cuda().empty()) return open_cuda();
  return find_kernels(c10::Device(c10::kCUDA, 0), file, definitions) == nullptr ? "kernels do not compile"
                                                                                : "";
}

inline at::Tensor on_gpu(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(c10::Device(c10::kCUDA, 0)) : tensor;
}

}  // namespace trainer::test
