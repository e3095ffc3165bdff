// The operator behind Rotary::apply.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// x [batch, heads, seq, head_dim] with [x1, x2] halves of head_dim -> [x1 cos - x2 sin, x2 cos + x1 sin], in
// bf16 rounded after each product as transformers does. `back`: the inverse, which is the gradient. The
// result lies in memory as [batch, seq, heads, head_dim]: as the projections give and take it.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);

// What CUDA uses until it has a kernel of its own.
at::Tensor rotate_composite(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);

}  // namespace trainer
