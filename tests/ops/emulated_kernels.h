// The GPU kernels of src/ops, run on the CPU (support/emulated_gpu.h). For files that are compiled alone.
#pragma once

#include <string>

#include "device/target_device.h"
#include "support/emulated_gpu.h"

// clang-format off
// after what makes C++ of CUDA, and before the namespaces
#include "ops/fp8.cuh"
#include "ops/gated_delta.cuh"
#include "ops/mask.cuh"
#include "ops/nf4.cuh"
#include "ops/norm.cuh"
#include "ops/run_table.cuh"
#include "ops/silu.cuh"
#include "ops/t5_attention.cuh"
// clang-format on

namespace float_1 {
using Element = float;
constexpr int kWidth = 1;
#include "ops/kernels_of_ops.h"
}  // namespace float_1
namespace float_4 {
using Element = float;
constexpr int kWidth = 4;
#include "ops/kernels_of_ops.h"
}  // namespace float_4
namespace bf16_1 {
using Element = bf16;
constexpr int kWidth = 1;
#include "ops/kernels_of_ops.h"
}  // namespace bf16_1
namespace bf16_8 {
using Element = bf16;
constexpr int kWidth = 8;
#include "ops/kernels_of_ops.h"
}  // namespace bf16_8
namespace head_16 {
constexpr int kHeadDim = 16;
#include "ops/kernels_of_t5_attention.h"
}  // namespace head_16
namespace head_64 {
constexpr int kHeadDim = 64;
#include "ops/kernels_of_t5_attention.h"
}  // namespace head_64
namespace head_128 {
constexpr int kHeadDim = 128;
#include "ops/kernels_of_t5_attention.h"
}  // namespace head_128
namespace delta_float_32 {
using Element = float;
constexpr int kHeadDim = 32;
#include "ops/kernels_of_gated_delta.h"
}  // namespace delta_float_32
namespace delta_float_128 {
using Element = float;
constexpr int kHeadDim = 128;
#include "ops/kernels_of_gated_delta.h"
}  // namespace delta_float_128
namespace delta_bf16_32 {
using Element = bf16;
constexpr int kHeadDim = 32;
#include "ops/kernels_of_gated_delta.h"
}  // namespace delta_bf16_32
namespace delta_bf16_128 {
using Element = bf16;
constexpr int kHeadDim = 128;
#include "ops/kernels_of_gated_delta.h"
}  // namespace delta_bf16_128

namespace trainer {

class EmulatedGpu : public emulated::Gpu {
 public:
  EmulatedGpu() {
    float_1::add_to(*this, "Element=float kWidth=1");
    float_4::add_to(*this, "Element=float kWidth=4");
    bf16_1::add_to(*this, "Element=bf16 kWidth=1");
    bf16_8::add_to(*this, "Element=bf16 kWidth=8");
    head_16::add_to(*this);
    head_64::add_to(*this);
    head_128::add_to(*this);
    delta_float_32::add_to(*this, "Element=float kHeadDim=32");
    delta_float_128::add_to(*this, "Element=float kHeadDim=128");
    delta_bf16_32::add_to(*this, "Element=bf16 kHeadDim=32");
    delta_bf16_128::add_to(*this, "Element=bf16 kHeadDim=128");
  }
  // Whether the last operator moved several elements at once.
  bool was_wide() { return !take_used().back().ends_with("kWidth=1"); }
};

// Returns what `work` does with the operators' forms for a GPU.
template <class Work>
auto as_on_a_gpu(const Work& work) {
  const CpuActsAsGpu acts;
  return work();
}

// While it lives, what a GPU runs for the operators runs for CPU tensors.
struct OperatorsOnAnEmulatedGpu {
  EmulatedGpu gpu;
  CpuActsAsGpu acts;
};

}  // namespace trainer
