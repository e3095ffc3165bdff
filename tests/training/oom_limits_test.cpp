// Steps under a limit of memory: what is split, recomputed, remembered, tried again and given up.
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/training/trainer.h"

#include "data/fixture.h"
#include "models/golden.h"
#include "support/error_message.h"
#include "training/oom_bench.h"

namespace trainer {
namespace {

using oom::Bench;
using oom::Case;
using oom::expect_same_weights;

class Limits : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    install_host_allocator();
    log::set_level(log::Level::error);
  }
  static void TearDownTestSuite() { log::set_level(log::Level::info); }
  void TearDown() override {
    set_host_limit(0);
    fail_host_allocation(0);
  }
};

const Case kT5{"t5_v1_1", false, false}, kQwen{"qwen2", false, false};

TEST_F(Limits, FromAmpleToHopeless) {
  const EffectiveBatch batch = Golden(kT5.model).batch;
  Bench ample(kT5);
  const double loss = ample.trainer->step(batch).loss;
  int64_t recovered = 0, hopeless = 0;
  for (int64_t room = 2'000'000; room > 20'000; room = room * 9 / 10) {
    Bench bench(kT5);
    std::vector<at::Tensor> before;
    for (const TrainedParameter& p : bench.trainer->parameters()) before.push_back(p.value.detach().clone());
    const int64_t floor = host_memory().in_use;
    set_host_limit(floor + room);
    reset_host_peak();
    try {
      const StepResult result = bench.trainer->step(batch);
      EXPECT_NEAR(result.loss, loss, 1e-5 * loss) << room;
      EXPECT_EQ(hopeless, 0) << "less memory helped";
      recovered += result.retries > 0 ? 1 : 0;
    } catch (const OutOfMemoryError& error) {
      hopeless++;
      EXPECT_EQ(error.code(), ExitCode::out_of_memory);
      for (const char* part : {"weights", "gradients", "optimizer state", "peak", "limit", "What helps",
                               "data.max_source_length"}) {
        EXPECT_TRUE(has(error.what(), part));
      }
      EXPECT_TRUE(bench.trainer->has_whole_weights());
      for (size_t i = 0; i < before.size(); i++)
        EXPECT_TRUE(before[i].equal(bench.trainer->parameters()[i].value)) << i;
    }
    EXPECT_LE(host_memory().peak, host_memory().limit);
    set_host_limit(0);
    EXPECT_EQ(host_memory().in_use, floor) << room;
  }
  EXPECT_GT(recovered, 0);
  EXPECT_GT(hopeless, 0);
}

// One long sample of qwen2, and the memory that a step of it takes.
struct LongSample {
  LongSample() : batch(Golden(kQwen.model).batch), golden(batch) {
    Sample longest = batch.samples[3];
    for (int n = 0; n < 4; n++) {
      const Sample& more = batch.samples[2];
      longest.input_ids.insert(longest.input_ids.end(), more.input_ids.begin(), more.input_ids.end());
      longest.labels.insert(longest.labels.end(), more.labels.begin(), more.labels.end());
    }
    batch.samples = {longest};
    batch.supervised_tokens = supervised_tokens(longest, false);
    kept = peak(batch, false);
    recomputed = peak(batch, true);
  }
  static int64_t peak(const EffectiveBatch& of, bool recompute) {
    Bench bench({kQwen.model, false, recompute},
                [](Config& config) { config.training.micro_batching = MicroBatching::samples; });
    const int64_t floor = host_memory().in_use;
    reset_host_peak();
    bench.trainer->step(of);
    return host_memory().peak - floor;
  }

  EffectiveBatch batch, golden;
  int64_t kept = 0, recomputed = 0;
};

TEST_F(Limits, ASingleSampleThatDoesNotFitIsRecomputedAndThenGivenUp) {
  const LongSample sample;
  const auto& [batch, golden, kept, recomputed] = sample;
  ASSERT_LT(recomputed, kept * 9 / 10);

  Bench bench(kQwen), expected({kQwen.model, false, true});
  set_host_limit(host_memory().in_use + (kept + recomputed) / 2);
  const StepResult result = bench.trainer->step(batch);
  set_host_limit(0);
  EXPECT_EQ(result.recomputed_blocks, bench.model->num_blocks());
  EXPECT_EQ(result.cuts, std::vector<int64_t>{1});
  expected.trainer->step(batch);
  expect_same_weights(bench, expected, 0);

  set_host_limit(host_memory().in_use + recomputed / 2);
  EXPECT_THROW(bench.trainer->step(batch), OutOfMemoryError);
  set_host_limit(0);
  EXPECT_EQ(bench.trainer->steps_taken(), 1);
}

TEST_F(Limits, SamplesThatMustStayTogetherAreNotParted) {
  EffectiveBatch pair = LongSample().batch;
  pair.samples.push_back(pair.samples[0]);
  pair.supervised_tokens *= 2;
  for (Sample& sample : pair.samples) sample.group = 0;
  const int64_t kept = LongSample::peak(pair, false), recomputed = LongSample::peak(pair, true);
  Bench bench(kQwen, [](Config& config) { config.training.micro_batching = MicroBatching::samples; });
  set_host_limit(host_memory().in_use + (kept + recomputed) / 2);
  const StepResult result = bench.trainer->step(pair);
  EXPECT_EQ(result.cuts, std::vector<int64_t>{2});
  EXPECT_EQ(result.recomputed_blocks, bench.model->num_blocks());
  set_host_limit(host_memory().in_use + recomputed / 2);
  const std::string error = test::error_message<OutOfMemoryError>([&] { bench.trainer->step(pair); });
  EXPECT_TRUE(test::contains(error, "samples that must stay together do not fit")) << error;
}

// A run whose every sample needs recompute runs out of memory once, not in every step.
TEST_F(Limits, RecomputeIsRememberedForSamplesAsLong) {
  const LongSample sample;
  Bench bench(kQwen, [](Config& config) { config.recovery.grow_after = 1; });
  set_host_limit(host_memory().in_use + (sample.kept + sample.recomputed) / 2);
  EXPECT_EQ(bench.trainer->step(sample.batch).retries, 1);
  const StepResult second = bench.trainer->step(sample.batch);
  EXPECT_EQ(second.retries, 0);
  EXPECT_EQ(second.recomputed_blocks, bench.model->num_blocks());
  EffectiveBatch shorter = sample.golden;
  shorter.samples.resize(1);
  shorter.supervised_tokens = supervised_tokens(shorter.samples[0], false);
  EXPECT_EQ(bench.trainer->step(shorter).recomputed_blocks, 0) << "a short sample fits without";
  for (int i = 0; i < 2; i++) EXPECT_EQ(bench.trainer->step(sample.batch).retries, 0);
  EXPECT_EQ(bench.trainer->step(sample.batch).retries, 1) << "tried again, as memory may have become free";
  set_host_limit(0);
}

// Samples that are recomputed anyway are tried together again, recomputed.
TEST_F(Limits, RecomputedSamplesAreTriedTogetherAgain) {
  const LongSample sample;
  EffectiveBatch pair = sample.batch;
  pair.samples.push_back(pair.samples[0]);
  pair.supervised_tokens *= 2;
  const int64_t together = LongSample::peak(pair, true);
  ASSERT_LT(together, LongSample::peak(pair, false) * 9 / 10);
  Bench bench(kQwen, [](Config& config) {
    config.recovery.grow_after = 2;
    config.training.micro_batching = MicroBatching::samples;
  });
  const int64_t floor = host_memory().in_use;
  set_host_limit(floor + (sample.kept + sample.recomputed) / 2);
  const StepResult first = bench.trainer->step(pair);
  EXPECT_EQ(first.cuts, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(first.recomputed_blocks, bench.model->num_blocks());
  set_host_limit(floor + together * 21 / 20);
  StepResult later;
  for (int i = 0; i < 3; i++) {
    later = bench.trainer->step(pair);
    EXPECT_EQ(later.retries, 0) << i;
  }
  EXPECT_EQ(later.cuts, std::vector<int64_t>{2});
  EXPECT_EQ(later.recomputed_blocks, bench.model->num_blocks());
  set_host_limit(0);
}

// They cost the least to do without.
TEST_F(Limits, WidenedWeightsAreGivenUpBeforeTheMicroBatchIsSplit) {
  const EffectiveBatch batch = Golden(kT5.model).batch;
  Bench bench(kT5, [](Config& config) { config.memory.widen_once = true; });
  const size_t whole = bench.trainer->step(batch).cuts.size();
  fail_host_allocation(50);
  const StepResult first = bench.trainer->step(batch);
  EXPECT_EQ(first.cuts.size(), whole);
  EXPECT_EQ(first.retries, 1);
  ASSERT_EQ(bench.recoveries.size(), 1u);
  EXPECT_TRUE(test::contains(bench.recoveries[0].line(), "no longer keep the widened weights"));
  fail_host_allocation(50);
  EXPECT_GT(bench.trainer->step(batch).cuts.size(), whole) << "once in a run";
}

TEST_F(Limits, TheSizeThatFitsIsRememberedAndALargerOneIsTriedAgain) {
  const EffectiveBatch batch = Golden(kT5.model).batch;
  Bench bench(kT5, [](Config& config) { config.recovery.grow_after = 2; });
  const size_t whole = bench.trainer->step(batch).cuts.size();
  fail_host_allocation(50);
  const size_t smaller = bench.trainer->step(batch).cuts.size();
  ASSERT_GT(smaller, whole);
  std::vector<size_t> micro_batches;
  for (int i = 0; i < 12; i++) micro_batches.push_back(bench.trainer->step(batch).cuts.size());
  EXPECT_EQ(micro_batches[0], smaller) << "remembered";
  EXPECT_EQ(micro_batches[1], smaller);
  EXPECT_TRUE(std::ranges::is_sorted(micro_batches, std::greater{}));
  EXPECT_EQ(micro_batches.back(), whole) << "the configured size again";
  EXPECT_EQ(bench.recoveries.size(), 1u);
}

TEST_F(Limits, RetriesAndSizesHaveTheBoundsOfTheConfiguration) {
  const EffectiveBatch batch = Golden(kT5.model).batch;
  Bench none(kT5, [](Config& config) { config.recovery.max_retries = 0; });
  fail_host_allocation(50);
  EXPECT_THROW(none.trainer->step(batch), OutOfMemoryError);
  fail_host_allocation(0);
  EXPECT_EQ(none.trainer->step(batch).retries, 0) << "and the next step is as if nothing had been";

  Bench large(kT5, [](Config& config) {
    config.recovery.min_batch_size = 5;
    config.training.micro_batching = MicroBatching::samples;
  });
  fail_host_allocation(50);
  const StepResult result = large.trainer->step(batch);
  EXPECT_EQ(result.cuts, std::vector<int64_t>{5});
  EXPECT_EQ(result.recomputed_blocks, large.model->num_blocks());
}

TEST_F(Limits, ThrashingMakesTheNextStepsSmaller) {
  const EffectiveBatch batch = Golden(kT5.model).batch;
  Bench bench(kT5);
  int64_t retries = 0;
  bench.trainer->set_thrash_watch(ThrashWatch([&] { return ++retries; }));
  std::vector<size_t> micro_batches;
  for (int i = 0; i < 4; i++) micro_batches.push_back(bench.trainer->step(batch).cuts.size());
  EXPECT_EQ(micro_batches[0], micro_batches[2]);
  EXPECT_GT(micro_batches[3], micro_batches[2]);
  ASSERT_EQ(bench.recoveries.size(), 1u);
  EXPECT_EQ(bench.recoveries[0].stage, "allocator retries");
}

}  // namespace
}  // namespace trainer
