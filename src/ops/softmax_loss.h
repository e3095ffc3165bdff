// The loss of a chunk of logits, and its gradient, in place of them.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// What softmax_loss() takes and gives for each row besides the label and the loss: fp32 [rows]. Undefined
// tensors are neither read nor computed.
struct RowTerms {
  double z_loss = 0.0;  // c: c * log(Z)^2 is added to the loss of a row; Z is the sum of e^logit
  at::Tensor weights;   // the loss and its gradient are multiplied by these
  at::Tensor log_p;     // gets log p(label), without weight and smoothing
  at::Tensor log_z;     // gets log Z
};

// Returns the loss of each row, fp32 [rows], for logits [rows, vocab] and labels [rows]:
// (1 - smoothing) * -log p(label) + smoothing * mean of -log p. With `want_gradient`, the logits become the
// gradient of the losses' sum, computed in fp32 and rounded once. On the CPU, for fp32 or bf16 logits, two or
// three passes over a row that stays in the processor's cache; on CUDA, where this serves as the composite
// (ops/linear_cross_entropy.h), LibTorch's operators, for fp32 logits.
at::Tensor softmax_loss(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool want_gradient,
                        const RowTerms& terms = {});

}  // namespace trainer
