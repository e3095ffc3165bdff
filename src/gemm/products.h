// Products of matrices by this program's own kernels, for x86 processors where they are faster than MKL and
// oneDNN (docs/performance.md).
//
// A number of the result is computed in the same order whatever the other rows, columns and products are and
// however many threads there are. With x in fp32, a bf16 weight is widened while it is packed, so no fp32
// copy of it exists. Two bf16 matrices are multiplied as they are, with sums in fp32, where the processor can
// do that.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// The types that these kernels multiply on this processor.
struct BuiltinTypes {
  bool fp32 = false, bf16 = false;
  bool amx = false;  // whether bf16 is multiplied by AMX
};
BuiltinTypes builtin_types();

// Returns whether add_builtin_products() can compute x y, for x [m, k] and y [k, n]. False where a gradient
// is recorded, for very small matrices, and for other types than those of SummedProduct. On meta, the same
// for the planned device. Whether it should is decided by ops/cpu_products.h.
bool can_multiply(const at::Tensor& x, const at::Tensor& y);

// sum += scale * x y, or sum = scale * x y if `begun` is false. sum is fp32 [m, n] and its columns are
// contiguous; x is fp32 and y fp32 or bf16, or both are bf16 on processors with AVX512-BF16, and one of their
// dimensions is contiguous. With both in bf16, so may the sum be, which is then rounded once by each product.
struct SummedProduct {
  at::Tensor sum, x, y;
  double scale = 1.0;
  bool begun = false;
};

// Computes them all; an operand that several of them have is prepared once. Those with the same sum are added
// in their order. No operand is a sum, and different sums do not overlap.
void add_builtin_products(const std::vector<SummedProduct>& products);

}  // namespace trainer
