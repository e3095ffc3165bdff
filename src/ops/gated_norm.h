// The gated norm of Gated DeltaNet (transformers, Qwen3_5RMSNormGated): each head's RMSNorm times the SiLU of
// a gate.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns rms_norm(x by heads of weight's size) * silu(gate), with x's shape: x, gate [batch, tokens, heads *
// size], weight [size], all of one type; the norm and the activated gate are rounded before the product.
// Differentiable, on a GPU only: one kernel each way, besides those of a trained weight's gradient. Kept for
// backward are x, gate and a number a head.
at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight, double epsilon);

}  // namespace trainer
