// The output projection and the cross-entropy in one function. The logits [tokens, vocab] never exist as a
// whole.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

struct LossSum {
  at::Tensor loss;     // fp32 scalar, differentiable: the SUM of token losses
  at::Tensor correct;  // int64 scalar: tokens whose largest logit is the label; undefined unless requested
};

struct LossOptions {
  double label_smoothing = 0.0;  // e: the loss is (1 - e) * nll + e * mean over the vocabulary of -log p
                                 // (transformers, LabelSmoother)
  bool count_correct = false;
  double soft_cap = 0.0;  // c: logits first become c tanh(logits / c) (Gemma 2; transformers,
                          // final_logit_softcapping); 0: no cap
  // On a GPU: chunks as small as on the CPU, which take less memory and a little more time.
  bool small_chunks = false;
};

// Returns the SUM of the token losses. hidden [n, hidden] and weight [vocab, hidden] have the same type;
// labels is [n] int64. Logits are computed in chunks of rows; what follows from them is computed in fp32. The
// gradients are computed in the same pass, so backward only scales them. A chunk's logits take up to 128 MB
// on the CPU, or 192 MB in bf16 with built-in products (ops/cpu_products.h). On a GPU a chunk has 1,024 rows
// or more, unless small_chunks or NoGradMode asks for less.
LossSum linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             const LossOptions& options);

}  // namespace trainer
