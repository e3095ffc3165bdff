// Scores of predicted classes and numbers: as scikit-learn and SciPy compute them.
#include <gtest/gtest.h>

#include "training/evaluate_labels.h"

namespace trainer {
namespace {

// f1_score(labels, predictions, average=None) and "macro": 0.5, 2/3, 0.8.
TEST(LabelScores, F1IsThatOfScikitLearn) {
  const Confusion confusion =
      confusion_of({"a", "b", "c", "never"}, {{1, 1, 0, 0}, {0, 2, 0, 0}, {1, 0, 2, 0}, {0, 0, 0, 0}});
  EXPECT_NEAR(confusion.f1[0], 0.5, 1e-12);
  EXPECT_NEAR(confusion.f1[1], 0.8, 1e-12);
  EXPECT_NEAR(confusion.f1[2], 0.8, 1e-12);
  EXPECT_NEAR(macro_f1(confusion), 0.7, 1e-12);  // without the class that nobody has and nobody names
}

// pearsonr and spearmanr of SciPy.
TEST(LabelScores, CorrelationsAreThoseOfSciPy) {
  const std::vector<double> a{1, 2, 3, 4, 5}, b{2, 1, 4, 3, 30};
  EXPECT_NEAR(pearson(a, b), 0.7426139036, 1e-9);
  EXPECT_NEAR(spearman(a, b), 0.8, 1e-12);
  EXPECT_NEAR(spearman({1, 2, 2, 4}, {1, 3, 2, 4}), 0.9486832981, 1e-9);  // equal values share a rank
  EXPECT_EQ(pearson(a, {7, 7, 7, 7, 7}), 0);
}

TEST(LabelScores, ProbabilitiesOfLargeOutputsAreFinite) {
  const std::vector<double> shares = probabilities_of({1000, 1000, -1000});
  EXPECT_NEAR(shares[0], 0.5, 1e-12);
  EXPECT_EQ(shares[2], 0);
}

}  // namespace
}  // namespace trainer
