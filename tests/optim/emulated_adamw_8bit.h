// The kernel of 8-bit AdamW in all its specializations, run on the CPU.
#pragma once

#include "device/kernels.h"
#include "support/emulated_gpu.h"

// clang-format off
#include "optim/updates.cuh"  // after what makes C++ of CUDA, and before the namespaces
// clang-format on

namespace coded_float_float {
using Weight = float;
using Gradient = float;
#include "optim/kernels_of_adamw_8bit.h"
}  // namespace coded_float_float
namespace coded_float_bf16 {
using Weight = float;
using Gradient = bf16;
#include "optim/kernels_of_adamw_8bit.h"
}  // namespace coded_float_bf16
namespace coded_bf16_float {
using Weight = bf16;
using Gradient = float;
#include "optim/kernels_of_adamw_8bit.h"
}  // namespace coded_bf16_float
namespace coded_bf16_bf16 {
using Weight = bf16;
using Gradient = bf16;
#include "optim/kernels_of_adamw_8bit.h"
}  // namespace coded_bf16_bf16
namespace trainer {

namespace test {

class EmulatedAdamw8bit : public emulated::Gpu {
 public:
  EmulatedAdamw8bit() {
    coded_float_float::add_to(*this, "Weight=float Gradient=float");
    coded_float_bf16::add_to(*this, "Weight=float Gradient=bf16");
    coded_bf16_float::add_to(*this, "Weight=bf16 Gradient=float");
    coded_bf16_bf16::add_to(*this, "Weight=bf16 Gradient=bf16");
  }
};

}  // namespace test
}  // namespace trainer
