// The output projection and the cross-entropy in one function. The logits [tokens, vocab] never exist as a
// whole.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// A row is a supervised token: its hidden state and its label. All is undefined unless requested, but `loss`.
struct LossSum {
  at::Tensor loss;        // fp32 scalar, differentiable: the SUM of token losses, z_loss included
  at::Tensor correct;     // int64 scalar: tokens whose largest logit is the label
  at::Tensor z_loss;      // fp32 scalar: the part of `loss` that LossOptions::z_loss adds
  at::Tensor divergence;  // fp32 scalar: the sum of the divergences from a teacher, each times its weight
  // fp32 [n]: log p(label) of each row, without weight and smoothing. Differentiable with respect to `hidden`
  // if the loss has neither, nor a z_loss, and `weight` needs no gradient.
  at::Tensor log_probabilities;
};

// What a teacher says of each row: its likeliest tokens. The rest of the vocabulary counts as one more token,
// for the teacher and for the model: the divergence is that of these two distributions over top + 1 tokens.
struct TeacherTerm {
  at::Tensor ids;            // int64 [n, top], no token twice in a row; undefined: there is no teacher
  at::Tensor log_probs;      // fp32 [n, top]; -inf: no token
  double weight = 0.5;       // w: the loss of a row is (1 - w) * its cross-entropy + w * T^2 * divergence
  double temperature = 1.0;  // T: both distributions become p^(1/T), normalised (Hinton et al. 2015)
  bool reverse = false;      // the divergence is KL(model || teacher) instead of KL(teacher || model)

  bool defined() const { return ids.defined(); }
};

struct LossOptions {
  double label_smoothing = 0.0;  // e: the loss is (1 - e) * nll + e * mean over the vocabulary of -log p
                                 // (transformers, LabelSmoother)
  bool count_correct = false;    // LossSum::correct
  double soft_cap = 0.0;         // c: logits first become c tanh(logits / c) (Gemma 2; transformers,
                                 // final_logit_softcapping); 0: no cap
  // On a GPU: the rows of a chunk of logits, or as many as on the CPU if that is more. Fewer take less memory
  // and a little more time.
  int64_t chunk_rows = 1024;
  // c: a token's loss grows by c * log(Z)^2, where Z is the sum of e^logit over the vocabulary, of the capped
  // logits if there is a cap (Chowdhery et al. 2022, PaLM, section 5; T5X). It keeps log(Z) near 0.
  double z_loss = 0.0;
  // g: -log p(label) is multiplied by (1 - p(label))^g (Lin et al. 2017, focal loss, eq. 4).
  double focal_gamma = 0.0;
  TeacherTerm teacher = {};
  bool log_probabilities = false;  // LossSum::log_probabilities
};

// Returns the SUM of the token losses. hidden [n, hidden] and weight [vocab, hidden] have the same type;
// labels is [n] int64. row_weights, fp32 [n], multiplies the loss of each row and its gradients; undefined:
// all are 1. It may be negative, and has no gradient itself. Logits are computed in chunks of rows; what
// follows from them is computed in fp32. The gradients are computed in the same pass, so backward only scales
// them. A chunk's logits take up to 128 MB on the CPU, or 192 MB in bf16 with built-in products
// (ops/cpu_products.h). On a GPU a chunk has chunk_rows rows or more, and as few as on the CPU in NoGradMode.
LossSum linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             const LossOptions& options, const at::Tensor& row_weights = {});

}  // namespace trainer
