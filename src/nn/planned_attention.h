// Attention of a memory plan: LibTorch chooses its implementation by the tensors' device, and for tensors on
// meta it chooses one that keeps the matrix.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace trainer {

// at::scaled_dot_product_attention without dropout, for tensors on meta: the operator that LibTorch would
// choose on the target (memory/target_device.h), whose meta kernel allocates what that one does.
at::Tensor planned_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::optional<at::Tensor>& mask, bool causal, double scale, bool grouped);

}  // namespace trainer
