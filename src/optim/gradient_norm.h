// The Euclidean norm over several tensors, which are on one device.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns it on a GPU, an fp32 scalar there: gradient_norm.cu, two launches for all tensors. There is at
// least one tensor, and all are fp32 or bf16.
at::Tensor gradient_norm_gpu(const std::vector<at::Tensor>& gradients);

// Returns the 2-norms of the pieces of a gradient on the CPU, fp32 [pieces], for fp32 and bf16. Squares are
// added up in fp64: LibTorch's norm on the CPU keeps one vector of fp32 sums and loses small addends, so that
// over 66 million elements it is 0.5 % too small. A piece's sum has one order, on any number of threads.
at::Tensor norms_of_pieces(const at::Tensor& gradient);

}  // namespace trainer
