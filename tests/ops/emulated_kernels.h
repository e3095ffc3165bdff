// The GPU kernels of src/nn, run on the CPU (support/emulated_gpu.h). For files that are compiled alone.
#pragma once

#include <string>

#include <torch/library.h>

#include "ops/add_norm.h"
#include "ops/attention_weights.h"
#include "ops/dropout.h"
#include "ops/gated_activation.h"
#include "ops/rms_norm.h"
#include "ops/rotate_qk.h"
#include "support/emulated_gpu.h"

// clang-format off
// after what makes C++ of CUDA, and before the namespaces
#include "ops/mask.cuh"
#include "ops/norm.cuh"
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

namespace trainer {

class EmulatedGpu : public emulated::Gpu {
 public:
  EmulatedGpu() {
    float_1::add_to(*this, "Element=float kWidth=1");
    float_4::add_to(*this, "Element=float kWidth=4");
    bf16_1::add_to(*this, "Element=bf16 kWidth=1");
    bf16_8::add_to(*this, "Element=bf16 kWidth=8");
  }
  // Whether the last operator moved several elements at once.
  bool was_wide() { return !take_used().back().ends_with("kWidth=1"); }
};

// While it lives, what a GPU runs for the operators of src/nn runs for CPU tensors.
class OperatorsOnAnEmulatedGpu {
 public:
  OperatorsOnAnEmulatedGpu()
      : library_(torch::Library::IMPL, "trainer", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library_.impl("rms_norm", rms_norm_gpu);
    library_.impl("rms_norm_backward", rms_norm_backward_gpu);
    library_.impl("add_norm", add_norm_gpu);
    library_.impl("add_norm_backward", add_norm_backward_gpu);
    library_.impl("gated_activation", gated_gpu);
    library_.impl("gated_activation_backward", gated_backward_gpu);
    library_.impl("rotate_qk", rotate_qk_gpu);
    library_.impl("rotate_qk_backward", rotate_qk_backward_gpu);
    library_.impl("dropout", dropout_gpu);
    library_.impl("attention_weights", attention_weights_gpu);
    library_.impl("attention_weights_both", attention_weights_both_gpu);
    library_.impl("add_by_bucket", add_by_bucket_gpu);
    library_.impl("attention_weights_backward", attention_weights_backward_gpu);
  }
  EmulatedGpu gpu;

 private:
  torch::Library library_;
};

}  // namespace trainer
