// What a teacher adds to the loss of rows of logits, and to its gradient (TeacherTerm in
// trainer/ops/linear_cross_entropy.h).
//
// The divergence is one of two distributions over a row's top + 1 tokens, of which the last is the rest of
// the vocabulary. Its gradient is a number for each of the tokens, and the same multiple of p for all others:
// that multiple goes into the pass over the logits, and the few numbers are put in place after it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "ops/linear_cross_entropy.h"

namespace trainer {

// Of the rows of a chunk. Does nothing if there is no teacher.
class TeacherOfRows {
 public:
  // `weights`: of all rows, undefined if all are 1.
  TeacherOfRows(const LossOptions& options, const at::Tensor& weights, int64_t first, int64_t count);

  // Takes what it needs of the logits [rows, vocab], fp32, which it leaves as they are. `capped`: whether
  // they have the soft cap already.
  void look_at(at::Tensor& logits, bool capped);
  // RowTerms::of_p, undefined without a teacher.
  const at::Tensor& of_p() const { return of_p_; }
  // Puts the gradients of the teacher's tokens in place, in what softmax_loss() has left of the logits.
  // `capped`: they are with respect to capped logits.
  void put_gradients(at::Tensor& gradient, const at::Tensor& labels, const RowTerms& terms,
                     bool capped) const;
  // Adds the sum of the divergences, each times its weight.
  void add_to(LossParts& parts) const;

 private:
  void plan(const at::Tensor& logits, bool caps);

  TeacherTerm teacher_;
  double smoothing_, soft_cap_;
  at::Tensor weights_, rest_, logits_, known_, of_tokens_, of_p_, divergence_;
};

}  // namespace trainer
