// What cross-entropy asks of the head, and what its sums are divided by.
#include "objectives/objective.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

std::vector<std::string> names(const Objective& objective, Pass pass) {
  std::vector<std::string> names;
  for (const Term& term : objective.terms(pass)) names.push_back(term.name);
  return names;
}

TEST(CrossEntropy, IsDividedByTheWeightsOfWhatIsSupervised) {
  const auto objective = make_objective(Config());
  const std::vector<Sample> samples{
      {{4, 5, 6}, {kIgnore, 5, 6}}, {{4, 5, 6}, {4, kIgnore, 6}, {9, 9, 0.25}}, {}};
  EXPECT_EQ(objective->normaliser(samples, /*encoder_decoder=*/false), 2.25);
  EXPECT_EQ(objective->normaliser(samples, /*encoder_decoder=*/true), 2 + 9.25);
  EXPECT_EQ(objective->normaliser({}, false), 0);
  EXPECT_EQ(mean_of(0, 0), 0) << "a step in which nothing is supervised";
}

// Evaluations compare runs, whatever each of them optimises.
TEST(CrossEntropy, IsEvaluatedWithoutWhatOnlyTrainingAdds) {
  Config config;
  config.training.label_smoothing = 0.1;
  config.training.z_loss = 1e-4;
  config.training.focal_gamma = 2;
  const auto objective = make_objective(config);
  EXPECT_EQ(objective->options(Pass::training).label_smoothing, 0.1);
  EXPECT_EQ(objective->options(Pass::training).focal_gamma, 2);
  EXPECT_EQ(objective->options(Pass::evaluation).focal_gamma, 0);
  EXPECT_EQ(objective->options(Pass::training).z_loss, 1e-4);
  EXPECT_FALSE(objective->options(Pass::training).count_correct);
  EXPECT_EQ(objective->options(Pass::evaluation).label_smoothing, 0);
  EXPECT_EQ(objective->options(Pass::evaluation).z_loss, 0);
  EXPECT_TRUE(objective->options(Pass::evaluation).count_correct);
}

// What a file says is of the training data; a directory is asked about both.
TEST(CrossEntropy, ReportsTheDivergenceFromATeacher) {
  Config config;
  config.objective.name = "distill";
  config.objective.teacher_weight = 0.25;
  EXPECT_EQ(names(*make_objective(config), Pass::training), (std::vector<std::string>{"loss", "teacher_kl"}));
  EXPECT_EQ(names(*make_objective(config), Pass::evaluation),
            (std::vector<std::string>{"loss", "token_accuracy"}));
  config.objective.teacher = "somewhere";
  const auto objective = make_objective(config);
  EXPECT_EQ(names(*objective, Pass::evaluation),
            (std::vector<std::string>{"loss", "token_accuracy", "teacher_kl"}));
  EXPECT_EQ(objective->options(Pass::training).teacher.weight, 0.25);
  EXPECT_EQ(objective->options(Pass::evaluation).teacher.weight, 0) << "the loss is that of the labels";
}

TEST(CrossEntropy, ReportsZLossOnlyIfThereIsOne) {
  Config config;
  EXPECT_EQ(names(*make_objective(config), Pass::training), (std::vector<std::string>{"loss"}));
  config.training.z_loss = 1e-4;
  const auto objective = make_objective(config);
  EXPECT_EQ(names(*objective, Pass::training), (std::vector<std::string>{"loss", "z_loss"}));
  EXPECT_EQ(names(*objective, Pass::evaluation), (std::vector<std::string>{"loss", "token_accuracy"}));
}

// Each term has its sum, in the same order.
TEST(CrossEntropy, HasASumForEachTerm) {
  Config config;
  config.training.z_loss = 1e-4;
  const auto objective = make_objective(config);
  for (const Pass pass : {Pass::training, Pass::evaluation}) {
    const LossSum out = linear_cross_entropy(at::ones({3, 4}), at::ones({5, 4}),
                                             at::tensor({0, 1, 2}).to(at::kLong), objective->options(pass));
    const std::vector<at::Tensor> sums = objective->sums(out, pass);
    ASSERT_EQ(sums.size(), objective->terms(pass).size());
    EXPECT_TRUE(sums[0].equal(out.loss));
    EXPECT_TRUE(sums.back().equal(pass == Pass::training ? out.z_loss : out.correct));
  }
}

TEST(TermSums, AddUpMicroBatchesInFp64) {
  Config config;
  config.training.z_loss = 1e-4;
  const auto objective = make_objective(config);
  TermSums sums(*objective, Pass::training, at::kCPU);
  for (const at::Tensor& value : sums.values()) EXPECT_EQ(value.item<double>(), 0);
  LossSum one;
  one.loss = at::full({}, 0.1f).set_requires_grad(true);
  one.z_loss = at::full({}, 0.25f);
  for (int i = 0; i < 3; i++) sums.add(one);
  EXPECT_EQ(sums.values()[0].item<double>(), 3 * static_cast<double>(0.1f));
  EXPECT_EQ(sums.values()[1].item<double>(), 0.75);
  EXPECT_FALSE(sums.values()[0].requires_grad()) << "the graph of a micro-batch would stay in memory";
}

// A quarter of the tokens is right; the loss is divided by their weights.
TEST(TermSums, GiveMeansByWeightsOrByTokens) {
  const auto objective = make_objective(Config());
  const Means means =
      means_of(*objective, Pass::evaluation, {6, 3}, /*normaliser=*/2, /*supervised_tokens=*/12);
  EXPECT_EQ(means, (Means{{"loss", 3}, {"token_accuracy", 0.25}}));
}

}  // namespace
}  // namespace trainer
