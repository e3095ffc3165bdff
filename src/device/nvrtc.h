// NVIDIA's run-time compiler. Opened with dlopen; it needs no GPU and no driver.
#pragma once

#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "device/kernels.h"

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

// Returns the first of these libraries that opens: paths, or names that the system looks for. Opens the
// builtins that lie next to it as well, because it will not find them itself.
DynamicLibrary open_nvrtc(const std::vector<std::string>& places);

// Returns whether the library is there. It may still not compile.
bool has_nvrtc();

// Returns "" if it compiles a kernel, otherwise why not. Tries only once.
const std::string& why_no_nvrtc();

}  // namespace trainer
