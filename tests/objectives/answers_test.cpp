// Losses of preferences and of feedback: their values by the formulas of the papers, and that the slopes are
// their derivatives.
#include "objectives/answers.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trainer {
namespace {

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

ObjectiveConfig objective(const char* name, const char* loss_type = "sigmoid") {
  ObjectiveConfig config;
  config.name = name;
  config.loss_type = loss_type;
  config.beta = 0.4;
  return config;
}

AnswersOfRow some_row() {
  AnswersOfRow row;
  row.policy = {-3.5, -4.25};
  row.reference = {-3, -4.5};
  row.tokens = {5, 3};
  row.nll = row.policy[0];
  row.nll_tokens = row.tokens[0];
  return row;
}

double loss_of(const ObjectiveConfig& config, const AnswersOfRow& row, double kl = 0) {
  AnswerSums sums;
  AnswersLoss(config).slopes(row, kl, sums);
  return sums[AnswerSums::loss];
}

std::vector<ObjectiveConfig> all_objectives() {
  std::vector<ObjectiveConfig> all;
  for (const char* type : {"sigmoid", "hinge", "robust", "apo_zero", "apo_down"})
    all.push_back(objective("dpo", type));
  for (const char* name : {"ipo", "orpo", "simpo", "cpo", "kto"}) all.push_back(objective(name));
  all.push_back(objective("cpo", "hinge"));
  all.push_back(objective("dpo"));
  all.back().label_smoothing = 0.2;
  all.back().rpo_alpha = 0.7;
  all.push_back(objective("dpo", "robust"));
  all.back().label_smoothing = 0.2;
  all.push_back(objective("dpo"));
  all.back().length_normalised = true;
  all.push_back(objective("dpo"));
  all.back().reference = Reference::none;
  all.push_back(objective("ipo"));
  all.back().length_normalised = false;
  all.push_back(objective("kto"));
  all.back().desirable_weight = 1.5;
  all.back().undesirable_weight = 0.5;
  all.push_back(objective("reward"));
  all.back().center_rewards_coefficient = 0.1;
  return all;
}

TEST(AnswersLoss, SlopesAreTheDerivativesOfTheLoss) {
  for (const ObjectiveConfig& config : all_objectives()) {
    for (const bool desirable : {true, false}) {
      AnswersOfRow row = some_row();
      row.desirable = desirable;
      AnswerSums sums;
      const AnswersLoss loss(config);
      const std::array<double, 2> slopes = loss.slopes(row, 0.3, sums);
      for (size_t side = 0; side < 2; side++) {
        constexpr double kStep = 1e-5;
        AnswersOfRow more = row, less = row;
        more.policy[side] += kStep;
        less.policy[side] -= kStep;
        if (side == 0) more.nll += kStep, less.nll -= kStep;
        const double found = slopes[side] + (side == 0 ? loss.nll_slope(row) : 0.0);
        const double expected = (loss_of(config, more, 0.3) - loss_of(config, less, 0.3)) / (2 * kStep);
        EXPECT_NEAR(found, expected, 1e-8) << config.name << " " << config.loss_type << " " << side;
      }
    }
  }
}

// With the log ratios -0.5 and 0.25, so that their difference is -0.75.
TEST(AnswersLoss, IsThatOfThePapers) {
  const AnswersOfRow row = some_row();
  const auto near = [&](const ObjectiveConfig& config, double expected) {
    EXPECT_NEAR(loss_of(config, row), expected, 1e-12) << config.name << " " << config.loss_type;
  };
  near(objective("dpo"), -std::log(sigmoid_of(0.4 * -0.75)));
  near(objective("dpo", "hinge"), 1 + 0.4 * 0.75);
  near(objective("dpo", "apo_zero"), 1 - sigmoid_of(0.4 * -0.5) + sigmoid_of(0.4 * 0.25));
  near(objective("dpo", "apo_down"), sigmoid_of(0.4 * -0.5) + 1 - sigmoid_of(0.4 * -0.75));
  near(objective("ipo"), std::pow(-0.5 / 5 - 0.25 / 3 - 1 / 0.8, 2));
  ObjectiveConfig smooth = objective("dpo");
  smooth.label_smoothing = 0.2;
  near(smooth, -0.8 * std::log(sigmoid_of(-0.3)) - 0.2 * std::log(sigmoid_of(0.3)));
  smooth.loss_type = "robust";
  near(smooth, (-0.8 * std::log(sigmoid_of(-0.3)) + 0.2 * std::log(sigmoid_of(0.3))) / 0.6);
  ObjectiveConfig simpo = objective("simpo");
  simpo.gamma = 0.5;
  near(simpo, -std::log(sigmoid_of(0.4 * (-3.5 / 5 + 4.25 / 3) - 0.5)));
  ObjectiveConfig cpo = objective("cpo");
  cpo.rpo_alpha = 1;
  near(cpo, -std::log(sigmoid_of(0.4 * 0.75)) + 3.5 / 5);
  const double chosen = std::exp(-3.5 / 5), rejected = std::exp(-4.25 / 3);
  near(objective("orpo"),
       3.5 / 5 - 0.4 * std::log(sigmoid_of(std::log(chosen / (1 - chosen) / (rejected / (1 - rejected))))));
  near(objective("reward"), -std::log(sigmoid_of(-3.5 + 4.25)));
  ObjectiveConfig centred = objective("reward");
  centred.center_rewards_coefficient = 0.1;
  near(centred, -std::log(sigmoid_of(-3.5 + 4.25)) + 0.1 * 7.75 * 7.75);
}

// What it is the mean of is the divisor: of the answer's tokens, or of an update's tokens for each row.
TEST(AnswersLoss, OfTheChosenAnswerAloneIsDividedAsAsked) {
  ObjectiveConfig config = objective("dpo");
  AnswersOfRow row = some_row();
  const double without = loss_of(config, row);
  config.rpo_alpha = 0.5;
  EXPECT_NEAR(loss_of(config, row) - without, 0.5 * 3.5 / 5, 1e-12);
  row.nll = -8;
  row.nll_tokens = 4;
  EXPECT_NEAR(loss_of(config, row) - without, 0.5 * 8 / 4, 1e-12);
  EXPECT_NEAR(AnswersLoss(config).nll_slope(row), -0.5 / 4, 1e-12);
}

TEST(AnswersLoss, OfKtoWeighsBothJudgements) {
  ObjectiveConfig config = objective("kto");
  config.desirable_weight = 1.5;
  AnswersOfRow row = some_row();
  EXPECT_NEAR(loss_of(config, row, 0.25), 1.5 * (1 - sigmoid_of(0.4 * (-0.5 - 0.25))), 1e-12);
  row.desirable = false;
  EXPECT_NEAR(loss_of(config, row, 0.25), 1 - sigmoid_of(0.4 * (0.25 + 0.5)), 1e-12);
  EXPECT_EQ(AnswersLoss::divergence({-1, -2}, {-2, -1.5}), 0.25);
  EXPECT_EQ(AnswersLoss::divergence({-3}, {-1}), 0) << "it is never below 0";
}

TEST(AnswersLoss, ReportsRewardsAndHowManyAreRight) {
  const AnswersLoss loss(objective("dpo"));
  AnswerSums sums;
  AnswersOfRow right = some_row();
  right.policy = {-2, -6};
  loss.slopes(some_row(), 0, sums);
  loss.slopes(right, 0, sums);
  const Means means = loss.means(sums, 0);
  const auto of = [&](const std::string& name) {
    for (const auto& [other, value] : means)
      if (other == name) return value;
    return std::nan("");
  };
  EXPECT_EQ(means.front().first, "loss");
  EXPECT_NEAR(of("reward_chosen"), 0.4 * (-0.5 + 1) / 2, 1e-12);
  EXPECT_NEAR(of("reward_rejected"), 0.4 * (0.25 - 1.5) / 2, 1e-12);
  EXPECT_NEAR(of("reward_margin"), of("reward_chosen") - of("reward_rejected"), 1e-12);
  EXPECT_EQ(of("reward_accuracy"), 0.5);
  EXPECT_NEAR(of("logps_chosen"), -2.75, 1e-12);
}

}  // namespace
}  // namespace trainer
