// The rotary embedding of one tensor. Rotary::apply() rotates two at once (rotate_qk.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// Takes x [batch, heads, seq, head_dim] and tables of n <= head_dim / 2 columns. With halves [x1, x2] of the
// first 2 n columns, returns [x1 cos - x2 sin, x2 cos + x1 sin, the other columns of x]. bf16 is rounded
// after each product, as in transformers. `back`: the inverse, which is the gradient. The result is laid out
// in memory as [batch, seq, heads, head_dim], as the projections return and take it.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);

// Returns an uninitialised tensor of x's shape, laid out in memory like rotate()'s result.
at::Tensor empty_by_position(const at::Tensor& x);

// What CUDA uses where rotate_qk.cu does not work: LibTorch's operators.
at::Tensor rotate_composite(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);

}  // namespace trainer
