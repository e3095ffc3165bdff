// Attention in a memory plan. LibTorch chooses its implementation by the tensors' device, and for meta
// tensors it would choose one that keeps the matrix.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace trainer {

// at::scaled_dot_product_attention without dropout, for meta tensors: calls the operator that LibTorch would
// choose on the target (device/target_device.h). Its meta kernel allocates what the real one allocates.
at::Tensor planned_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::optional<at::Tensor>& mask, bool causal, double scale, bool grouped);

}  // namespace trainer
