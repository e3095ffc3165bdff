// A step whose objective compares or judges answers: what its passes need besides the samples.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"

#include "objectives/answers.h"

namespace trainer {

// Both answers of a row are usually in one micro-batch. Then its forward pass gives their log-probabilities,
// from which follow the slopes by which its backward pass begins. If they are not, `policy` has them already.
class StepOfAnswers {
 public:
  StepOfAnswers(const AnswersLoss& loss, const ObjectiveConfig& objective, EffectiveBatch of,
                bool encoder_decoder);

  // The samples; those of a row stay together unless they are apart.
  EffectiveBatch batch;
  bool apart = false;
  // By slot; not used where there is no reference, and of the policy where the answers are together.
  std::vector<double> reference, policy;
  double kl = 0;
  AnswerSums sums;  // over the rows whose first answer went through a backward pass here

  // Keeps the answers of a row together in micro-batches and on ranks, or no longer.
  void keep_together(bool together);
  // Returns the gradient of the step's loss with respect to the log-probabilities of a micro-batch's labels,
  // in the order in which collate() lays out the slots, and adds up what is reported.
  at::Tensor gradient(const std::vector<int64_t>& slots, const at::Tensor& log_probabilities);
  // The mean loss of all rows, and what else is reported, from the sums of all ranks.
  Means means(const AnswerSums& of_all) const { return loss_.means(of_all, kl); }

 private:
  AnswersOfRow row_of(int64_t row, const std::vector<double>& policy_here) const;
  double nll_divisor(int64_t row) const;

  const AnswersLoss& loss_;
  bool nll_over_tokens_;
  bool encoder_decoder_;
  std::vector<double> tokens_;      // by slot: the weights of an answer's labels
  std::vector<double> nll_tokens_;  // by row: of the chosen answer's own loss
  double all_nll_tokens_ = 0;
};

}  // namespace trainer
