// NF4 to numbers, on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/nf4.h"

namespace trainer {

// Returns the values first, first + 1, ...: [count] in `type`. The same bits on every device.
at::Tensor dequantise(const Nf4Tensor& tensor, int64_t first, int64_t count, at::ScalarType type);

// What runs on a GPU: nf4.cu, or LibTorch's operators. nested_scales: undefined without double
// quantisation.
at::Tensor dequantise_nf4_gpu(const at::Tensor& codes, const at::Tensor& scales,
                              const at::Tensor& nested_scales, double offset, int64_t first, int64_t count,
                              at::ScalarType type);

}  // namespace trainer
