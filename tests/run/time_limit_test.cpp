#include <gtest/gtest.h>

#include "run/watches.h"

namespace trainer {
namespace {

TEST(TimeLimit, IsUpWhenWhatIsToComeWouldEndTooLate) {
  double now = 1000;
  const TimeLimit limit(2.0, [&] { return now; });
  now += 7000;
  EXPECT_FALSE(limit.is_up(200));
  EXPECT_TRUE(limit.is_up(201));
  now += 201;
  EXPECT_TRUE(limit.is_up(0));
}

TEST(TimeLimit, WithoutHoursThereIsNone) {
  double now = 0;
  const TimeLimit limit(0, [&] { return now; });
  now = 1e9;
  EXPECT_FALSE(limit.is_up(1e9));
}

}  // namespace
}  // namespace trainer
