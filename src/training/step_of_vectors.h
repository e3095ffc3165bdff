// A step whose objective compares the vectors of texts: each text is to be nearer to the one that belongs to
// it than to those of all other rows of the step.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"

#include "objectives/objective.h"

namespace trainer {

// The loss needs all vectors of the step, and its gradient with respect to each of them follows from these
// alone. So the passes may be as many as there are: where a step is more than one micro-batch, a pass without
// gradients gives the vectors, and the backward pass of each micro-batch starts from its part of the gradient
// (Gao et al. 2021, GradCache).
class StepOfVectors {
 public:
  // `batch`: sides of rows that belong together; a third one belongs to no row.
  StepOfVectors(double scale, const EffectiveBatch& batch) : scale_(scale), batch_(batch) {}

  bool has_compared() const { return compared_; }
  // Computes loss and gradient from the vectors by slot. Cosines times the scale are the scores; the loss is
  // the mean cross-entropy of the row's own text among all second and third ones (Henderson et al. 2017;
  // MultipleNegativesRankingLoss of sentence-transformers).
  void compare(const std::vector<std::vector<double>>& vectors);
  // Returns the gradient with respect to the vectors of these slots, fp32 [slots, size].
  at::Tensor gradient(const std::vector<int64_t>& slots) const;
  // "loss", "accuracy": the share of rows whose own text is the nearest, and "similarity": its mean cosine.
  const Means& means() const { return means_; }

 private:
  double scale_;
  const EffectiveBatch& batch_;
  bool compared_ = false;
  at::Tensor gradient_;  // fp64 [slots, size]
  Means means_;
};

}  // namespace trainer
