// Factors of products in FP8: matrices whose rows have a scale each (ops/fp8.h), and transposed codes.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/fp8.h"

namespace trainer {

// A value is its code's times the scale of its row.
struct Fp8Rows {
  at::Tensor codes;   // uint8 [rows, columns]: the bytes of e4m3
  at::Tensor scales;  // fp32 [rows]
  std::vector<at::Tensor> tensors() const { return {codes, scales}; }
};

// Quantises x [rows, columns], fp32 or bf16, whose rows may be apart, as Fp8Quantiser does a weight: the
// scale is the row's largest magnitude / 448 (1e-35 / 448 at least: gradients are small), and a code is value
// / scale, rounded to the nearest, ties to even. `by`, fp32 [columns]: each column is multiplied by its
// number before; may be undefined. NaN stays NaN, at least where it is.
Fp8Rows fp8_rows(const at::Tensor& x, const at::Tensor& by = {});

// Returns the codes of matrices, uint8 [any rows * columns] each, below each other and transposed: uint8
// [columns, all rows]. Rows and columns are multiples of 4.
at::Tensor transposed_codes(at::TensorList codes, int64_t columns);

}  // namespace trainer
