// Losses that compare the answers of a row, or judge them: functions of the log-probabilities of whole
// answers. Of objective.name: reward, they are what a head gives each answer instead.
//
// The gradient of such a loss L is the sum over answers of dL/ds times that of s, the log-probability of the
// answer. dL/ds follows on the host, in fp64, from the s of a row alone (kto: and of a mean over the
// effective batch). So the gradient does not depend on how the effective batch is split.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/config/config.h"

#include "objectives/objective.h"

namespace trainer {

// The answers of a row: chosen and rejected, or one that is judged.
struct AnswersOfRow {
  // Sums of the log-probabilities of an answer's tokens, each times its weight in the loss, and of the
  // weights.
  std::array<double, 2> policy{}, reference{}, tokens{1, 1};
  bool desirable = true;
  // Of the chosen answer's own loss: a sum of log-probabilities, and what it is divided by.
  double nll = 0, nll_tokens = 1;
};

// What is added up over rows, for what is reported.
struct AnswerSums {
  enum Sum : size_t {
    rows,
    loss,
    chosen,
    chosen_reward,
    chosen_logps,
    rejected,
    rejected_reward,
    rejected_logps,
    right
  };
  std::array<double, right + 1> values{};

  double& operator[](Sum sum) { return values[sum]; }
  double operator[](Sum sum) const { return values[sum]; }
};

class AnswersLoss {
 public:
  explicit AnswersLoss(const ObjectiveConfig& config) : config_(config) {}

  // Returns the derivatives of the row's loss with respect to its answers' log-probabilities. `kl`: kto's
  // estimate of the divergence from the reference.
  std::array<double, 2> slopes(const AnswersOfRow& row, double kl, AnswerSums& sums) const;
  // Returns the derivative with respect to AnswersOfRow::nll.
  double nll_slope(const AnswersOfRow& row) const { return -config_.nll_weight() / row.nll_tokens; }
  // Returns the mean loss, which is the first, and what else is reported.
  Means means(const AnswerSums& sums, double kl) const;

  // Returns kto's estimate of the divergence of the model from the reference: the mean difference of
  // log-probabilities of answers to other prompts, 0 at least (Ethayarajh et al. 2024, section 4.1).
  static double divergence(const std::vector<double>& policy, const std::vector<double>& reference);

 private:
  struct Slopes {
    double loss = 0, chosen = 0, rejected = 0;
  };
  Slopes of_pair(double chosen, double rejected) const;
  Slopes of_odds(double chosen, double rejected) const;
  Slopes of_rewards(double chosen, double rejected) const;
  std::array<double, 2> judged(const AnswersOfRow& row, double kl, AnswerSums& sums) const;
  bool per_token() const;

  ObjectiveConfig config_;
};

}  // namespace trainer
