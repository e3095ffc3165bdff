#include "trainer/training/time_limit.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

TEST(TimeLimit, is_up_when_what_is_to_come_would_end_too_late) {
  double now = 1000;
  const TimeLimit limit(2.0, [&] { return now; });
  now += 7000;
  EXPECT_FALSE(limit.is_up(200));
  EXPECT_TRUE(limit.is_up(201));
  now += 201;
  EXPECT_TRUE(limit.is_up(0));
}

TEST(TimeLimit, without_hours_there_is_none) {
  double now = 0;
  const TimeLimit limit(0, [&] { return now; });
  now = 1e9;
  EXPECT_FALSE(limit.is_up(1e9));
}

}  // namespace
}  // namespace trainer
