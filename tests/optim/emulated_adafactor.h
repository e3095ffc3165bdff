// Adafactor's kernels in all their specializations, run on the CPU.
#pragma once

#include "device/kernels.h"
#include "support/emulated_gpu.h"

// clang-format off
#include "optim/updates.cuh"  // after what makes C++ of CUDA, and before the namespaces
// clang-format on

namespace adafactor_float_float_float {
using Weight = float;
using Gradient = float;
using State = float;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_float_float_float
namespace adafactor_float_float_bf16 {
using Weight = float;
using Gradient = float;
using State = bf16;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_float_float_bf16
namespace adafactor_float_bf16_float {
using Weight = float;
using Gradient = bf16;
using State = float;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_float_bf16_float
namespace adafactor_float_bf16_bf16 {
using Weight = float;
using Gradient = bf16;
using State = bf16;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_float_bf16_bf16
namespace adafactor_bf16_float_float {
using Weight = bf16;
using Gradient = float;
using State = float;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_bf16_float_float
namespace adafactor_bf16_float_bf16 {
using Weight = bf16;
using Gradient = float;
using State = bf16;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_bf16_float_bf16
namespace adafactor_bf16_bf16_float {
using Weight = bf16;
using Gradient = bf16;
using State = float;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_bf16_bf16_float
namespace adafactor_bf16_bf16_bf16 {
using Weight = bf16;
using Gradient = bf16;
using State = bf16;
#include "optim/adafactor_kernels.h"
}  // namespace adafactor_bf16_bf16_bf16

namespace trainer {

namespace test {

class EmulatedAdafactor : public emulated::Gpu {
 public:
  EmulatedAdafactor() {
    adafactor_float_float_float::add_to(*this, "Weight=float Gradient=float State=float");
    adafactor_float_float_bf16::add_to(*this, "Weight=float Gradient=float State=bf16");
    adafactor_float_bf16_float::add_to(*this, "Weight=float Gradient=bf16 State=float");
    adafactor_float_bf16_bf16::add_to(*this, "Weight=float Gradient=bf16 State=bf16");
    adafactor_bf16_float_float::add_to(*this, "Weight=bf16 Gradient=float State=float");
    adafactor_bf16_float_bf16::add_to(*this, "Weight=bf16 Gradient=float State=bf16");
    adafactor_bf16_bf16_float::add_to(*this, "Weight=bf16 Gradient=bf16 State=float");
    adafactor_bf16_bf16_bf16::add_to(*this, "Weight=bf16 Gradient=bf16 State=bf16");
  }
};

}  // namespace test
}  // namespace trainer
