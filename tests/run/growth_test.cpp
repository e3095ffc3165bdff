// Memory growth is distinguished from the normal ups and downs of training, on made-up series.
#include <functional>

#include <gtest/gtest.h>

#include "run/watches.h"

namespace trainer {
namespace {

constexpr int64_t kMB = 1'000'000;

// What the watch says of so many steps, and at which step it says it.
struct Said {
  std::optional<Growth> growth;
  int64_t at = 0, times = 0;
};
Said watch(int64_t steps, const std::function<int64_t(int64_t step)>& bytes) {
  GrowthWatch watch(kMB);
  Said said;
  for (int64_t step = 1; step <= steps; step++) {
    if (const auto growth = watch.add(step, bytes(step))) {
      said.growth = growth;
      said.at = step;
      said.times++;
    }
  }
  return said;
}

// Deterministic ups of up to 500 MB, as samples of many lengths leave them.
int64_t noise(int64_t step) { return step * 7919 % 11 * 50 * kMB; }

TEST(Growth, ALeakIsNoticedOnceWithItsRate) {
  const Said said = watch(1000, [](int64_t step) { return 3000 * kMB + step * 300'000; });
  ASSERT_TRUE(said.growth);
  EXPECT_EQ(said.at, 60);
  EXPECT_EQ(said.times, 1);
  EXPECT_EQ(said.growth->bytes_per_step, 300'000);
  EXPECT_EQ(said.growth->first_step, 11);
  EXPECT_EQ(said.growth->last_step, 51);
  EXPECT_EQ(said.growth->to - said.growth->from, 40 * 300'000);
}

TEST(Growth, ALeakUnderNoiseIsNoticedToo) {
  const Said said = watch(1000, [](int64_t step) { return 3000 * kMB + step * 2 * kMB + noise(step); });
  ASSERT_TRUE(said.growth);
  EXPECT_NEAR(static_cast<double>(said.growth->bytes_per_step), 2.0 * kMB, 1.5 * kMB);
}

TEST(Growth, WhatStaysIsNoGrowth) {
  EXPECT_FALSE(watch(1000, [](int64_t) { return 3000 * kMB; }).growth);
  EXPECT_FALSE(watch(1000, [](int64_t step) { return 3000 * kMB + noise(step); }).growth);
}

TEST(Growth, CachesThatFillAreNoGrowth) {
  EXPECT_FALSE(watch(1000, [](int64_t step) { return std::min<int64_t>(step, 35) * 10 * kMB; }).growth);
}

TEST(Growth, OneJumpIsNoGrowth) {
  EXPECT_FALSE(watch(1000, [](int64_t step) { return step < 500 ? 1000 * kMB : 2000 * kMB; }).growth);
}

TEST(Growth, MemoryThatIsGivenBackIsNoGrowth) {
  EXPECT_FALSE(watch(1000, [](int64_t step) { return 1000 * kMB + step % 40 * 20 * kMB; }).growth);
}

TEST(Growth, ARiseWithinTheNoiseIsNoGrowth) {
  EXPECT_FALSE(watch(1000, [](int64_t step) { return 1000 * kMB + step * 50'000; }).growth);
}

}  // namespace
}  // namespace trainer
