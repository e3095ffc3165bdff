// DoRA (Liu et al. 2024) on a linear layer, as PEFT computes it (peft, tuners/lora/dora.py).
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/nn/weight.h"

namespace trainer {

// The 2-norms of the rows of W + scale * B A, fp32 [out]: weight [out, in] in any type, a [r, in] and b [out,
// r] fp32. The sum is made in pieces of rows, never as a whole. Not differentiable.
at::Tensor dora_norm(const Weight& weight, const at::Tensor& a, const at::Tensor& b, double scale);

// c * (x W^T + scale * B(A(x))) + bias, where c = magnitude / dora_norm [out] is fp32. With dropout (p > 0)
// as PEFT: x W^T + bias + (c - 1) * (d W^T) + c * scale * B(A(d)), d = dropout(x). x [rows, in], weight
// [out, in] multiplied in x's type, a [r, in] and b [out, r] in that of products (nn/matmul.h); gradients
// reach x, a, b and c. Between forward and backward only x, x A^T and c are kept: backward makes the frozen
// product again.
at::Tensor dora_linear(const at::Tensor& x, const Weight& weight, const std::optional<at::Tensor>& bias,
                       const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                       const at::Tensor& row_keys, uint64_t key, double p, double scale);

}  // namespace trainer
