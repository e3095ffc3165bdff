// The forward pass of linear_cross_entropy(), for the CPU and for GPUs.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/ops/linear_cross_entropy.h"

namespace trainer {

// Inputs and outputs of softmax_loss() for each row besides the label and the loss: fp32 [rows]. Undefined
// tensors are neither read nor computed.
struct RowTerms {
  double z_loss = 0.0;       // c: c * log(Z)^2 is added to the loss of a row; Z is the sum of e^logit
  at::Tensor weights;        // the loss and its gradient are multiplied by these
  at::Tensor log_p;          // gets log p(label), without weight and smoothing
  at::Tensor log_z;          // gets log Z
  double focal_gamma = 0.0;  // LossOptions::focal_gamma
  double share = 1.0;        // the loss but for z_loss is multiplied by this
  at::Tensor of_p = {};      // each gradient has this times p besides; the loss is without what belongs to it

  std::vector<at::Tensor> tensors() const { return {weights, log_p, log_z, of_p}; }
};

// The factor (1 - p)^g of focal loss, and minus the slope of -(1 - p)^g log p with respect to log p.
struct FocalFactors {
  double loss, slope;
};
inline FocalFactors focal_factors(double log_p, double gamma) {
  const double rest = -std::expm1(log_p);
  if (rest <= 0) return {0, 0};
  const double factor = std::pow(rest, gamma);
  return {factor, factor - gamma * factor / rest * std::exp(log_p) * log_p};
}

// Returns the loss of each row, fp32 [rows], for logits [rows, vocab] and labels [rows]:
// (1 - smoothing) * -log p(label) + smoothing * mean of -log p. With `want_gradient`, the logits become the
// gradient of the losses' sum, computed in fp32 and rounded once. For the CPU, in fp32 or bf16: two or three
// passes over a row that stays in the processor's cache.
at::Tensor softmax_loss(at::Tensor& logits, const at::Tensor& labels, double smoothing, bool want_gradient,
                        const RowTerms& terms = {});

struct LossGradients {
  bool hidden = false, weight = false;  // needed or not
  bool any() const { return hidden || weight; }
};

struct LossParts {
  at::Tensor loss, correct;                          // LossSum's; correct is 0 unless requested
  at::Tensor g_hidden, g_weight;                     // in the inputs' type; undefined if not needed
  at::Tensor z_loss, log_probabilities, divergence;  // LossSum's
};

// The inputs and outputs of all rows besides their labels and losses, as RowTerms.
struct RowsOfLoss {
  RowsOfLoss(const at::Tensor& hidden, const LossOptions& options, const at::Tensor& row_weights);
  // Returns those of the rows of a chunk.
  RowTerms narrow(int64_t first, int64_t count) const;
  // Fills in LossParts::z_loss and log_probabilities, after the last chunk.
  void finish(LossParts& parts) const;

  RowTerms all;

 private:
  bool keeps_log_p_ = false;
  double of_divergence_ = 0;
};

// Returns the rows of a chunk, at most `most`; all chunks but the last are equal.
int64_t rows_per_chunk(int64_t rows, int64_t most);
// The rows whose fp32 logits take 128 MB; at least 16.
inline int64_t rows_of_small_chunks(int64_t vocab) {
  return std::max<int64_t>(16, (int64_t{128} << 20) / (4 * vocab));
}

// The CPU's form. Logits become fp32 before the loss, except bf16 ones of built-in products.
LossParts loss_parts_cpu(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                         const LossOptions& options, const LossGradients& wanted,
                         const at::Tensor& row_weights = {});

// A GPU's form: between a chunk's products, one launch of linear_cross_entropy.cu. The products' fp32 sums
// are the logits; they are not rounded to the type of hidden. A chunk's memory is that of its fp32 logits,
// whose place the gradient takes.
LossParts loss_parts_gpu(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                         const LossOptions& options, const LossGradients& wanted,
                         const at::Tensor& row_weights = {});

}  // namespace trainer
