// Dropout whose mask is a pure function of a key, the row's key and the column. The mask is the same however
// the batch is split, and the same again in a recompute or a retry. There is no generator state.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns x [..., cols] with each element zeroed with probability p, p in [0, 1), and the others scaled by
// 1 / (1 - p). row_keys is int64, one per row (x.numel() / cols of them). Differentiable; backward computes
// the mask again.
at::Tensor dropout(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p);

// The same without autograd, for Functions that call it in forward and backward.
at::Tensor dropout_apply(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p);

// Returns dropout_apply() of x, and adds that of g, which has the same mask, to `sum`. All have one shape and
// type. For the CPU, where it computes the mask once and takes one pass.
at::Tensor dropout_with_gradient(const at::Tensor& x, const at::Tensor& g, const at::Tensor& sum,
                                 const at::Tensor& row_keys, uint64_t key, double p);

// Returns the keys of the rows of [batch, seq, ...] states, int64 [batch, seq]. A key is made of that of the
// sample (MicroBatch::dropout_keys), which is random and differs from step to step, and the position.
at::Tensor row_keys(const at::Tensor& dropout_keys, int64_t seq);

// The same for tokens of samples with these keys and positions, element by element.
at::Tensor row_keys(const at::Tensor& dropout_keys, const at::Tensor& positions);

// The CPU's form of both: dropout_cpu.cpp. A GPU's kernel has the same bits.
at::Tensor dropout_cpu(const at::Tensor& x, const at::Tensor& row_keys, int64_t key, double p);
at::Tensor dropout_with_gradient_cpu(const at::Tensor& x, const at::Tensor& g, const at::Tensor& sum,
                                     const at::Tensor& row_keys, int64_t key, double p);

}  // namespace trainer
