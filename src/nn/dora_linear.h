// DoRA (Liu et al. 2024) on a linear layer, as PEFT computes it (peft, tuners/lora/dora.py).
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

namespace trainer {

// Returns the 2-norm of each row of W + scale * B A, fp32 [out]. weight [out, in] has any type; a [r, in] and
// b [out, r] are fp32. The sum is computed a few rows at a time and never exists as a whole. Not
// differentiable.
at::Tensor dora_norm(const Weight& weight, const at::Tensor& a, const at::Tensor& b, double scale);

// Returns c * (x W^T + scale * B(A(x))) + bias, [rows, out], where c = magnitude / dora_norm [out] is fp32.
// With dropout (p > 0) it follows PEFT: x W^T + bias + (c - 1) * (d W^T) + c * scale * B(A(d)), d =
// dropout(x). x is [rows, in]; weight [out, in] is multiplied in x's type; a [r, in] and b [out, r] have the
// type of products (ops/matmul.h). Gradients reach x, a, b and c. Only x, x A^T and c are kept for backward,
// which computes the frozen product again.
at::Tensor dora_linear(const at::Tensor& x, const Weight& weight, const std::optional<at::Tensor>& bias,
                       const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                       const at::Tensor& row_keys, uint64_t key, double p, double scale);

}  // namespace trainer
