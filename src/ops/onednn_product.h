// fp32 products by oneDNN, which LibTorch holds beside MKL and uses for bf16 only.
//
// On AMD's processors MKL takes 256-bit instructions and oneDNN takes AVX-512, which multiplies up to 1.4
// times as fast; on Intel's neither is faster for all shapes (docs/performance.md).
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns whether onednn_product() is the way to x y (ops/cpu_products.h) and the faster one for this shape,
// for x [m, k] and y [k, n]. False where a gradient is recorded, which oneDNN's operator does not do.
bool suits_onednn(const at::Tensor& x, const at::Tensor& y);

// Returns x y, [m, n], of two fp32 matrices on a CPU. y or its transpose is contiguous, or it is copied.
at::Tensor onednn_product(const at::Tensor& x, const at::Tensor& y);

}  // namespace trainer
