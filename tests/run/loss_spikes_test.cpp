#include "trainer/run/loss_spikes.h"

#include <cmath>

#include <gtest/gtest.h>

#include "trainer/base/random.h"

namespace trainer {
namespace {

// Uniform in [0, 1), the same ones every time.
double noise(uint64_t step) { return static_cast<double>(derive(1, step) >> 11) * 0x1p-53; }

TEST(LossSpikes, TheNoiseOfARunWhoseLossFallsHasNone) {
  LossSpikes spikes;
  for (uint64_t step = 0; step < 2000; step++) {
    const double mean = 0.2 + 6 * std::exp(-static_cast<double>(step) / 200);
    EXPECT_FALSE(spikes.add(mean * (0.6 + 0.8 * noise(step)))) << step;
  }
}

TEST(LossSpikes, ALossFarAboveTheOthersIsOneAndDoesNotHideTheNext) {
  LossSpikes spikes;
  for (uint64_t step = 0; step < 40; step++) spikes.add(2 + 0.1 * noise(step));
  EXPECT_FALSE(spikes.add(2.3));
  EXPECT_TRUE(spikes.add(6));
  EXPECT_NEAR(spikes.median(), 2.05, 0.05);
  EXPECT_TRUE(spikes.add(5));
  EXPECT_FALSE(spikes.add(2.1));
}

TEST(LossSpikes, ALevelThatStaysIsNoneForLong) {
  LossSpikes spikes;
  for (uint64_t step = 0; step < 100; step++) spikes.add(1 + 0.01 * noise(step));
  int64_t marked = 0;
  for (uint64_t step = 0; step < 100; step++) marked += spikes.add(3 + 0.01 * noise(step)) ? 1 : 0;
  EXPECT_GE(marked, 10);
  EXPECT_LE(marked, 33);  // until the new level is more than half of the last 64
}

TEST(LossSpikes, AtTheStartAndAmongEqualLossesOnlyWhatIsFarAbove) {
  LossSpikes spikes;
  EXPECT_FALSE(spikes.add(1));
  EXPECT_FALSE(spikes.add(1000));  // two losses say nothing yet
  for (int step = 0; step < 30; step++) EXPECT_FALSE(spikes.add(1));
  EXPECT_FALSE(spikes.add(1.4));
  EXPECT_TRUE(spikes.add(1.6));
}

TEST(LossSpikes, GoesOnFromWhatWasSavedAsIfItHadNotStopped) {
  LossSpikes whole;
  for (uint64_t step = 0; step < 77; step++) whole.add(noise(step));
  LossSpikes resumed(whole.recent());
  for (uint64_t step = 77; step < 300; step++) {
    const double loss = noise(step) * (step % 41 == 0 ? 20 : 1);
    EXPECT_EQ(whole.add(loss), resumed.add(loss)) << step;
    EXPECT_EQ(whole.median(), resumed.median()) << step;
  }
}

}  // namespace
}  // namespace trainer
