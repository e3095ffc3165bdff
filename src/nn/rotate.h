// The operator behind Rotary::apply.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// x [batch, heads, seq, head_dim] with [x1, x2] halves of head_dim -> [x1 cos - x2 sin, x2 cos + x1 sin], in
// bf16 rounded after each product as transformers does. `back`: the inverse, which is the gradient. The
// result lies in memory as [batch, seq, heads, head_dim]: as the projections give and take it.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);

// Uninitialised, of x's shape, in memory as rotate()'s result.
at::Tensor empty_by_position(const at::Tensor& x);

// What CUDA uses: kernels/rotate.cu, and the composite of LibTorch's operators where that does not work.
at::Tensor rotate_gpu(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);
at::Tensor rotate_composite(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);

}  // namespace trainer
