// The loss of a chunk of logits, and its gradient, in place of them.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns the loss of each row, fp32 [rows], for logits [rows, vocab] and labels [rows]:
// (1 - smoothing) * -log p(label) + smoothing * mean of -log p. With `want_gradient`, the logits become the
// gradient of the losses' sum, computed in fp32 and rounded once. On the CPU, for fp32 or bf16 logits, two or
// three passes over a row that stays in the processor's cache; on CUDA, where this serves as the composite
// (ops/linear_cross_entropy.h), LibTorch's operators, for fp32 logits.
at::Tensor softmax_loss(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool want_gradient);

}  // namespace trainer
