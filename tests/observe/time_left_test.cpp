#include "observe/time_left.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

MetricRow step_row(int64_t step, double seconds) {
  return {"train", {{"step", step}, {"step_seconds", seconds}}};
}

TEST(TimeLeft, NothingIsKnownBeforeTheFirstStepOrWithoutAnEnd) {
  TimeLeft left;
  EXPECT_FALSE(left.estimate());
  left.add(step_row(1, 2));
  EXPECT_FALSE(left.estimate());
}

TEST(TimeLeft, TheFirstStepCountsUntilThereIsAnother) {
  TimeLeft left;
  left.set_outlook({.total_steps = 10});
  left.add(step_row(1, 60));
  EXPECT_DOUBLE_EQ(left.estimate()->seconds, 9 * 60);
  left.add(step_row(2, 2));
  EXPECT_DOUBLE_EQ(left.estimate()->seconds, 8 * 2);
}

TEST(TimeLeft, EvaluationsAndSavesToComeAreCounted) {
  TimeLeft left;
  left.set_outlook({.total_steps = 100, .evaluation_every = 30, .save_every = 50});
  for (int64_t step = 1; step <= 10; step++) left.add(step_row(step, 1));
  EXPECT_DOUBLE_EQ(left.estimate()->seconds, 90);
  EXPECT_EQ(left.estimate()->evaluations, 4) << "at 30, 60, 90 and the last step";
  left.add({"eval", {{"step", 10}, {"eval_seconds", 20.0}}});
  EXPECT_DOUBLE_EQ(left.estimate()->seconds, 90 + 4 * 20);
  EXPECT_EQ(left.estimate()->evaluations, 0);
  left.add({"save", {{"step", 10}, {"seconds", 5.0}}});
  EXPECT_DOUBLE_EQ(left.estimate()->seconds, 90 + 4 * 20 + 3 * 5) << "at 50, 100 and the result";
}

TEST(TimeLeft, OnlyTheLastStepsCount) {
  TimeLeft left;
  left.set_outlook({.total_steps = 1000});
  for (int64_t step = 1; step <= 300; step++) left.add(step_row(step, step <= 150 ? 10 : 1));
  EXPECT_DOUBLE_EQ(left.estimate()->seconds, 700);
}

}  // namespace
}  // namespace trainer
