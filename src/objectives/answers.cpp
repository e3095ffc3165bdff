#include "objectives/answers.h"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double log_sigmoid(double x) { return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); }

// A function of the difference of two rewards, with its derivative.
struct OfDifference {
  double loss, slope;
};

// Rafailov et al. 2023, eq. 7; with a share `e` of wrong labels Mitchell 2023 (cDPO).
OfDifference smoothed_sigmoid(double z, double e) {
  return {-(1 - e) * log_sigmoid(z) - e * log_sigmoid(-z), -(1 - e) * sigmoid(-z) + e * sigmoid(z)};
}
// Chowdhury et al. 2024, eq. 11: as many wrong labels are taken out of the expectation.
OfDifference robust(double z, double e) {
  return {(-(1 - e) * log_sigmoid(z) + e * log_sigmoid(-z)) / (1 - 2 * e),
          (-(1 - e) * sigmoid(-z) - e * sigmoid(z)) / (1 - 2 * e)};
}
// Zhao et al. 2023 (SLiC).
OfDifference hinge(double z) { return z < 1 ? OfDifference{1 - z, -1} : OfDifference{0, 0}; }

double derivative_of_sigmoid(double x) { return sigmoid(x) * sigmoid(-x); }

}  // namespace

// Of log-probabilities against those of the reference, or of log-probabilities alone.
AnswersLoss::Slopes AnswersLoss::of_pair(double chosen, double rejected) const {
  if (config_.name == "reward") return of_rewards(chosen, rejected);
  const double beta = config_.beta;
  if (config_.name == "orpo") return of_odds(chosen, rejected);
  if (config_.name == "ipo") {  // Azar et al. 2023, eq. 17
    const double off = chosen - rejected - 1 / (2 * beta);
    return {off * off, 2 * off, -2 * off};
  }
  const double difference = chosen - rejected;
  if (config_.name == "simpo") {  // Meng et al. 2024, eq. 6
    const auto [loss, slope] = smoothed_sigmoid(beta * difference - config_.gamma, config_.label_smoothing);
    return {loss, beta * slope, -beta * slope};
  }
  if (config_.loss_type == "apo_zero") {  // D'Oosterlinck et al. 2024, eq. 7
    return {sigmoid(-beta * chosen) + sigmoid(beta * rejected), -beta * derivative_of_sigmoid(beta * chosen),
            beta * derivative_of_sigmoid(beta * rejected)};
  }
  if (config_.loss_type == "apo_down") {  // eq. 8 there
    const double of_difference = beta * derivative_of_sigmoid(beta * difference);
    return {sigmoid(beta * chosen) + sigmoid(-beta * difference),
            beta * derivative_of_sigmoid(beta * chosen) - of_difference, of_difference};
  }
  const double z = beta * difference, e = config_.label_smoothing;
  const auto [loss, slope] = config_.loss_type == "hinge"    ? hinge(z)
                             : config_.loss_type == "robust" ? robust(z, e)
                                                             : smoothed_sigmoid(z, e);
  return {loss, beta * slope, -beta * slope};
}

// Hong et al. 2024, eq. 7, times beta: the loss of the odds ratio. Both log-probabilities are per token.
AnswersLoss::Slopes AnswersLoss::of_odds(double chosen, double rejected) const {
  constexpr double kMost = -1e-12;  // the odds of a probability of 1 are not finite
  chosen = std::min(chosen, kMost);
  rejected = std::min(rejected, kMost);
  const double rest_of_chosen = -std::expm1(chosen), rest_of_rejected = -std::expm1(rejected);
  const double ratio = chosen - rejected - std::log(rest_of_chosen) + std::log(rest_of_rejected);
  const double slope = -config_.beta * sigmoid(-ratio);
  return {-config_.beta * log_sigmoid(ratio), slope / rest_of_chosen, -slope / rest_of_rejected};
}

// Bradley and Terry's model of pairs (Ouyang et al. 2022, eq. 1); with a weight on the sum of the two, which
// keeps rewards around 0 (Eisenstein et al. 2023).
AnswersLoss::Slopes AnswersLoss::of_rewards(double chosen, double rejected) const {
  const double difference = chosen - rejected, sum = chosen + rejected,
               c = config_.center_rewards_coefficient, slope = sigmoid(-difference);
  return {-log_sigmoid(difference) + c * sum * sum, -slope + 2 * c * sum, slope + 2 * c * sum};
}

bool AnswersLoss::per_token() const {
  if (config_.name == "orpo" || config_.name == "simpo") return true;
  return config_.length_normalised.of(config_.name == "ipo");
}

std::array<double, 2> AnswersLoss::slopes(const AnswersOfRow& row, double kl, AnswerSums& sums) const {
  if (config_.judges()) return judged(row, kl, sums);
  const bool against = config_.has_reference();
  std::array<double, 2> whole{}, per{1, 1};
  for (size_t side = 0; side < 2; side++) {
    whole[side] = row.policy[side] - (against ? row.reference[side] : 0);
    if (per_token()) per[side] = 1 / row.tokens[side];
  }
  const Slopes found = of_pair(whole[0] * per[0], whole[1] * per[1]);
  const std::array<double, 2> slopes{found.chosen * per[0], found.rejected * per[1]};
  const double loss = found.loss + nll_slope(row) * row.nll;
  // The rewards are those of whole answers where there is a reference, as TRL reports them.
  const bool means = per_token() && (config_.name == "orpo" || config_.name == "simpo");
  std::array<double, 2> rewards{}, logps{};
  for (size_t side = 0; side < 2; side++) {
    const double beta = config_.row_score() == RowScore::answer ? 1.0 : config_.beta;
    rewards[side] = beta * whole[side] * (means ? per[side] : 1);
    logps[side] = row.policy[side] * (means ? per[side] : 1);
  }
  using S = AnswerSums;
  sums[S::rows]++;
  sums[S::loss] += loss;
  sums[S::chosen]++;
  sums[S::chosen_reward] += rewards[0];
  sums[S::chosen_logps] += logps[0];
  sums[S::rejected]++;
  sums[S::rejected_reward] += rewards[1];
  sums[S::rejected_logps] += logps[1];
  sums[S::right] += rewards[0] > rewards[1];
  return slopes;
}

// Ethayarajh et al. 2024, eq. 8.
std::array<double, 2> AnswersLoss::judged(const AnswersOfRow& row, double kl, AnswerSums& sums) const {
  const double ratio = row.policy[0] - row.reference[0], sign = row.desirable ? 1 : -1,
               weight = row.desirable ? config_.desirable_weight : config_.undesirable_weight;
  const double z = sign * config_.beta * (ratio - kl);
  using S = AnswerSums;
  sums[S::rows]++;
  sums[S::loss] += weight * sigmoid(-z);
  sums[row.desirable ? S::chosen : S::rejected]++;
  sums[row.desirable ? S::chosen_reward : S::rejected_reward] += config_.beta * ratio;
  sums[row.desirable ? S::chosen_logps : S::rejected_logps] += row.policy[0];
  sums[S::right] += z > 0;
  return {-weight * sign * config_.beta * derivative_of_sigmoid(z), 0};
}

double AnswersLoss::divergence(const std::vector<double>& policy, const std::vector<double>& reference) {
  double sum = 0;
  for (size_t i = 0; i < policy.size(); i++) sum += policy[i] - reference[i];
  return policy.empty() ? 0 : std::max(0.0, sum / static_cast<double>(policy.size()));
}

Means AnswersLoss::means(const AnswerSums& sums, double kl) const {
  using S = AnswerSums;
  Means means{{"loss", mean_of(sums[S::loss], sums[S::rows])}};
  const auto add = [&](const char* name, S::Sum sum, S::Sum of) {
    if (sums[of] > 0) means.emplace_back(name, sums[sum] / sums[of]);
  };
  add("reward_chosen", S::chosen_reward, S::chosen);
  add("reward_rejected", S::rejected_reward, S::rejected);
  if (sums[S::chosen] > 0 && sums[S::rejected] > 0)
    means.emplace_back("reward_margin", sums[S::chosen_reward] / sums[S::chosen] -
                                            sums[S::rejected_reward] / sums[S::rejected]);
  add("reward_accuracy", S::right, S::rows);
  if (config_.row_score() == RowScore::answer) return means;
  add("logps_chosen", S::chosen_logps, S::chosen);
  add("logps_rejected", S::rejected_logps, S::rejected);
  if (config_.judges()) means.emplace_back("kl", kl);
  return means;
}

}  // namespace trainer
