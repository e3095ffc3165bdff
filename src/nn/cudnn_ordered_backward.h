// Causal attention's backward pass by cuDNN, in a fixed order of sums (nn/cudnn_backward_plan.h). On Hopper
// it keeps a matrix of every head, length x length in bf16 (in cudnn-frontend's
// scaled_dot_product_flash_attention.h: use_dp_workspace). So it takes one sample after another: that needs
// the least memory, prepares once for a length, whatever the batch, and a sample's bits do not depend on the
// samples beside it. No card has run it yet.
#pragma once

#include <functional>

#include "nn/ordered_cudnn_attention.h"

namespace trainer {

// Returns whether a sample's matrices take at most 1 GiB: 32 heads of 4,096 positions. The sizes of a sample
// decide alone, not the memory that is free or the batch: otherwise kernels, and so bits, would change in the
// middle of a run, as when a batch is divided for lack of memory.
bool fits_cudnn_backward(int64_t heads, int64_t length);

// Returns the workspace for a sample in bytes, as plans on meta count it.
int64_t cudnn_backward_bytes(int64_t heads, int64_t groups, int64_t length, int64_t head_dim);

// Prepares for such heads on their GPU, unless that is done; not while work is being recorded. Throws
// std::runtime_error if cuDNN takes none, or is not there.
void prepare_cudnn_backward(const Qkv& in, double scale);

// The backward pass of AttentionKernels. On meta it only allocates.
Qkv cudnn_ordered_backward(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale);

// Backward of one sample, into `to`. All are laid out by position, heads side by side, at multiples of 16
// bytes; grad, `out` and `to` are dense. lse is dense.
using BackwardOfOne =
    std::function<void(const at::Tensor& grad, const Qkv& in, const Attended& of, const Qkv& to)>;

// Runs `one` for each sample of a batch, whose tensors may be laid out otherwise.
Qkv backward_by_sample(const at::Tensor& grad, const Qkv& in, const Attended& of, const BackwardOfOne& one);

}  // namespace trainer
