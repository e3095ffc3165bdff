// When a run gives back the memory that a GPU's allocator keeps for reuse.
#include "trainer/memory/cache_watch.h"

#include <gtest/gtest.h>

#include "trainer/memory/device_memory.h"

#include "memory/fake_gpu.h"

namespace trainer {
namespace {

constexpr int64_t kBillion = 1'000'000'000;

class CacheWatches : public testing::Test {
 protected:
  CacheWatches() { reset_peak_memory(device_); }

  // A step of a run that needs so much at its peak, and leaves so much with the allocator.
  bool step(int64_t peak, int64_t held, int64_t every = 1) {
    gpu_.peak = std::max(gpu_.peak, peak);
    gpu_.reserved = std::max(gpu_.reserved, held);
    return watch_.after_step(every, device_);
  }

  test::FakeGpus::Gpu& gpu_ = test::FakeGpus::install().gpus[0];
  const c10::Device device_{c10::kCUDA, 0};
  CacheWatch watch_;
};

TEST_F(CacheWatches, AnAllocatorThatHoldsWhatARunUsesKeepsIt) {
  for (int i = 0; i < 100; i++) EXPECT_FALSE(step(30 * kBillion, 33 * kBillion)) << i;
  EXPECT_EQ(gpu_.emptied, 0);
}

TEST_F(CacheWatches, TooLittleToBeWorthTheTimeIsKept) {
  for (int i = 0; i < 10; i++) EXPECT_FALSE(step(kBillion / 10, kBillion / 2)) << i;
}

TEST_F(CacheWatches, MuchThatWasUsedOnceIsGivenBack) {
  EXPECT_FALSE(step(30 * kBillion, 30 * kBillion)) << "a long sample";
  EXPECT_TRUE(step(10 * kBillion, 30 * kBillion)) << "and short ones after it";
  EXPECT_EQ(gpu_.emptied, 1);
  for (int i = 0; i < 10; i++) EXPECT_FALSE(step(10 * kBillion, 10 * kBillion));
  EXPECT_TRUE(step(10 * kBillion, 20 * kBillion));
}

TEST_F(CacheWatches, TheKeySaysHowOftenItLooks) {
  step(20 * kBillion, 20 * kBillion, 5);
  for (int i = 1; i < 4; i++) EXPECT_FALSE(step(kBillion, 20 * kBillion, 5)) << i;
  EXPECT_FALSE(step(kBillion, 20 * kBillion, 5)) << "the first of these five used all of it";
  for (int i = 0; i < 4; i++) EXPECT_FALSE(step(kBillion, 20 * kBillion, 5)) << i;
  EXPECT_TRUE(step(kBillion, 20 * kBillion, 5));
  for (int i = 0; i < 50; i++) EXPECT_FALSE(step(kBillion, 20 * kBillion, /*every=*/0));
}

// Pieces that no tensor fits into are held again at once.
TEST_F(CacheWatches, WhatComesBackAtOnceIsGivenBackMoreAndMoreRarely) {
  for (int i = 0; i < 1000; i++) step(10 * kBillion, 20 * kBillion);
  EXPECT_GT(gpu_.emptied, 5);
  EXPECT_LT(gpu_.emptied, 30);
}

TEST_F(CacheWatches, ThePeakOfARunStaysThatOfAllOfIt) {
  step(30 * kBillion, 30 * kBillion);
  step(10 * kBillion, 30 * kBillion);
  EXPECT_EQ(memory_use(device_).peak, 30 * kBillion);
  reset_peak_memory(device_);
  EXPECT_LT(memory_use(device_).peak, 30 * kBillion);
  EXPECT_FALSE(watch_.after_step(1, c10::kCPU));
}

}  // namespace
}  // namespace trainer
