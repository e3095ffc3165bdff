// The choice of matrix products on the CPU: MKL, oneDNN or this program's kernels, and the type in which bf16
// is multiplied.
//
// Each processor has its fastest (docs/performance.md). The choice depends on the processor and the
// configuration alone, never on a measurement, so that a run that resumes on its machine has the same bits.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"

namespace trainer {

// Sets training.cpu_products for this process; it begins with `automatic`. Call before the first product.
void set_cpu_products(CpuProducts wanted);

// Returns what multiplies on this processor: CpuProducts::mkl, onednn, by_type or builtin, never automatic.
CpuProducts cpu_products();

// Returns that in words, as "fp32 by MKL, bf16 by oneDNN".
std::string describe_cpu_products();

// Returns whether this program's kernels multiply matrices of this type.
bool multiplies_builtin(at::ScalarType type);

// Returns whether bf16 is multiplied in fp32.
bool widens_bf16();

// fp32 products by oneDNN, which LibTorch holds beside MKL and uses for bf16 only. On AMD's processors MKL
// takes 256-bit instructions and oneDNN takes AVX-512, which multiplies up to 1.4 times as fast; on Intel's
// neither is faster for all shapes (docs/performance.md).
//
// Returns whether onednn_product() is the way to x y and the faster one for this shape,
// for x [m, k] and y [k, n]. False where a gradient is recorded, which oneDNN's operator does not do.
bool suits_onednn(const at::Tensor& x, const at::Tensor& y);

// Returns x y, [m, n], of two fp32 matrices on a CPU. y or its transpose is contiguous, or it is copied.
at::Tensor onednn_product(const at::Tensor& x, const at::Tensor& y);

}  // namespace trainer
