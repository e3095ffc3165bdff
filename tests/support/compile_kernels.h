// Compiles the kernels of an emulated GPU with NVRTC for several kinds of GPUs. No GPU is needed.
#pragma once

#include <gtest/gtest.h>

#include "device/nvrtc.h"
#include "support/emulated_gpu.h"

namespace trainer::test {

// file: of all that `gpu` has of it. NVRTC 12.4 and older know nothing after 9.0, and give code that the
// driver translates.
inline void expect_compiles(const KernelFile& file, const emulated::Gpu& gpu) {
  int specialisations = 0;
  for (const auto& [name, kernels] : gpu.files()) {
    if (!name.starts_with(std::string(file.name) + " ")) continue;
    const std::string definitions = name.substr(std::string(file.name).size() + 1);
    for (const ComputeCapability target :
         {ComputeCapability{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {12, 0}}) {
      const CompiledKernels compiled = compile_kernels(file, definitions, target);
      EXPECT_EQ(compiled.problem, "") << name << " for " << target.major << "." << target.minor;
      const bool machine_code = compiled.image.starts_with("\177ELF");
      EXPECT_TRUE(machine_code || target.major > 9) << name;
      // A kernel's machine code is in a section of its name.
      for (const std::string& function : kernels.functions()) {
        const std::string place = machine_code ? ".text." + function + '\0' : ".entry " + function + "(";
        EXPECT_NE(compiled.image.find(place), std::string::npos) << name << function;
      }
    }
    specialisations++;
  }
  EXPECT_GT(specialisations, 0) << file.name;
}

}  // namespace trainer::test
