// Dropout whose mask is a pure function of a key, the row's key and the column: the same however the batch is
// cut, and again in a recompute or a retry. No generator state.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trainer {

// x [..., cols] with row_keys int64, one a row (x.numel() / cols of them): each element is zeroed with
// probability p, the others scaled by 1 / (1 - p). Differentiable; backward makes the mask again. p in [0,
// 1).
at::Tensor dropout(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p);

// The same without autograd, for Functions that call it in forward and backward.
at::Tensor dropout_apply(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p);

// Keys of the rows of [batch, seq, ...] states: of (slot, position). int64 [batch, seq].
at::Tensor row_keys(const at::Tensor& slots, int64_t seq);

// The same of tokens with these slots and positions, elementwise.
at::Tensor row_keys(const at::Tensor& slots, const at::Tensor& positions);

// What CUDA uses: src/nn/kernels/dropout.cu, and the composite of LibTorch's operators where that does not
// work. Both equal the CPU's kernel bit by bit (tests hold them so).
at::Tensor dropout_gpu(const at::Tensor& x, const at::Tensor& row_keys, int64_t key, double p);
at::Tensor dropout_composite(const at::Tensor& x, const at::Tensor& row_keys, int64_t key, double p);

}  // namespace trainer
