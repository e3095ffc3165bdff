// The Euclidean norm over several tensors, which are on one device.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Both return an fp32 scalar on the device; there is at least one tensor.
// For CUDA: gradient_norm.cu, two launches for all tensors, or the composite if it does not work.
at::Tensor gradient_norm_gpu(const std::vector<at::Tensor>& gradients);
// With LibTorch's operators: the norm of the tensors' norms.
at::Tensor gradient_norm_composite(const std::vector<at::Tensor>& gradients);

// The norm of a gradient on the CPU.

// Returns the 2-norms of the gradient's pieces, fp32 [pieces], for fp32 and bf16. Squares are added up in
// fp64: LibTorch's norm on the CPU keeps one vector of fp32 sums and loses small addends, so that over 66
// million elements it is 0.5 % too small. A piece's sum has one order, on any number of threads.
at::Tensor norms_of_pieces(const at::Tensor& gradient);

}  // namespace trainer
