// Products with a weight in FP8 by its codes, without widening it. GPUs from compute capability 8.9 on (Ada,
// Hopper, Blackwell) multiply e4m3 about twice as fast as bf16. It rounds more than a widened product does:
// the other factor, activations or gradients, is in e4m3 as well, with a scale a row.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

#include "ops/fp8.h"

namespace trainer {

// A matrix in e4m3 whose rows have a scale each: a value is its code's times the scale.
struct Fp8Rows {
  at::Tensor codes;   // float8_e4m3fn [rows, columns]
  at::Tensor scales;  // fp32 [rows, 1]
};

// Quantises x, fp32 or bf16, as Fp8Quantiser does a weight, on any device: the scale is the row's largest
// magnitude / 448, and a code is value / scale, rounded to the nearest, ties to even.
Fp8Rows fp8_rows(const at::Tensor& x);

// Returns the weight if products of x with it are computed so, else null: x is on such a GPU, the weight is
// in FP8 with a scale a row or one in all, its sizes are multiples of 16, and TRAINER_FP8_PRODUCTS is `on`.
// Without that it is widened, because no product of this kind has been run on a card yet.
const Fp8Tensor* multiplied_in_fp8(const at::Tensor& x, const Weight& w);

// x w^T in x's type, for x [n, columns of w]. On a GPU one call of LibTorch's _scaled_mm; on the CPU the same
// codes multiplied in fp32, in which their products are exact.
at::Tensor fp8_times_transposed(const at::Tensor& x, const Fp8Tensor& w);

// x w in x's type, for x [n, rows of w]. The scales of w lie along the sum, so x takes them up before it is
// quantised, and w's codes are transposed for this product.
at::Tensor fp8_times(const at::Tensor& x, const Fp8Tensor& w);

}  // namespace trainer
