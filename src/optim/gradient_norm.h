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

}  // namespace trainer
