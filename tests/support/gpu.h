// For tests that need a GPU: GTEST_SKIP if there is none.
#pragma once

#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/device/device.h"

#include "device/kernels.h"

namespace trainer::test {

// Opens LibTorch's CUDA libraries before the first test. LibTorch remembers that it has none once anything
// has asked for them, as plans on meta do.
struct OpensCuda : ::testing::Environment {
  void SetUp() override { open_cuda(); }
};
inline const ::testing::Environment* const opens_cuda = ::testing::AddGlobalTestEnvironment(new OpensCuda);

// "" where there is one with kernels of ours.
inline std::string why_no_gpu(const KernelFile& file, const std::string& definitions) {
  if (!open_cuda().empty()) return open_cuda();
  find_kernels(c10::Device(c10::kCUDA, 0), file, definitions);
  return "";
}

inline at::Tensor on_gpu(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(c10::Device(c10::kCUDA, 0)) : tensor;
}

}  // namespace trainer::test
