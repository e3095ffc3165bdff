// NVIDIA's run-time compiler. Opened with dlopen; it needs no GPU and no driver.
#pragma once

#include <string>

#include "trainer/device/kernels.h"

namespace trainer {

struct ComputeCapability {
  int major = 0, minor = 0;
};

struct CompiledKernels {
  std::string image;    // for cuModuleLoadData: machine code, or PTX for a GPU newer than the compiler
  std::string problem;  // why there is no image; "" if there is
};
CompiledKernels compile_kernels(const KernelFile& file, const std::string& definitions,
                                ComputeCapability gpu);

// Returns "" if it is available, otherwise why not. Checks only once.
const std::string& why_no_nvrtc();

}  // namespace trainer
