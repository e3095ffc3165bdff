// Compiles the kernels of an emulated GPU with NVRTC for several kinds of GPUs. No GPU is needed.
#pragma once

#include <gtest/gtest.h>

#include "device/nvrtc.h"
#include "support/emulated_gpu.h"

namespace trainer::test {

// file: of all that `gpu` has of it.
inline void expect_compiles(const KernelFile& file, const emulated::Gpu& gpu) {
  int specialisations = 0;
  for (const auto& [name, kernels] : gpu.files()) {
    if (!name.starts_with(std::string(file.name) + " ")) continue;
    const std::string definitions = name.substr(std::string(file.name).size() + 1);
    for (const ComputeCapability target :
         {ComputeCapability{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {12, 0}}) {
      const CompiledKernels compiled = compile_kernels(file, definitions, target);
      EXPECT_EQ(compiled.problem, "") << name << " for " << target.major << "." << target.minor;
      EXPECT_TRUE(compiled.image.starts_with("\177ELF"));
      // A kernel's code is in a section of its name.
      for (const std::string& function : kernels.functions()) {
        EXPECT_NE(compiled.image.find(".text." + function + '\0'), std::string::npos) << name << function;
      }
    }
    specialisations++;
  }
  EXPECT_GT(specialisations, 1) << file.name;
}

}  // namespace trainer::test
