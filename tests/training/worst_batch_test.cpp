#include "trainer/training/worst_batch.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "trainer/data/batching.h"
#include "trainer/training/evaluate.h"

namespace trainer {
namespace {

TEST(WorstBatch, HasTheRowsThatTheBudgetsAllow) {
  Config config;
  config.data.packing = false;
  config.training.batch_size = 4;
  config.training.effective_batch_size = 100;
  config.data.max_source_length = 100;
  config.data.max_target_length = 50;
  const EffectiveBatch full = worst_batch(config, true);
  EXPECT_EQ(full.samples.size(), 8);
  EXPECT_EQ(full.samples[0].input_ids.size(), 100);
  EXPECT_EQ(full.samples[0].labels.size(), 50);
  // Data with shorter samples: more of them go together, up to either budget.
  EXPECT_EQ(worst_batch(config, true, {50, 10}).samples.size(), 16);
  EXPECT_EQ(worst_batch(config, true, {10, 25}).samples.size(), 16);
  config.training.micro_batching = MicroBatching::samples;
  EXPECT_EQ(worst_batch(config, true, {50, 10}).samples.size(), 8);
  config.training.effective_batch_size = 3;
  EXPECT_EQ(worst_batch(config, true).samples.size(), 3);
}

TEST(WorstBatch, FillsPackedSourcesAndTargets) {
  Config config;
  config.data.packing = true;
  config.training.batch_size = 4;
  config.training.effective_batch_size = 100;
  config.data.max_source_length = 100;
  config.data.max_target_length = 50;
  for (const SampleLengths& longest : {SampleLengths{}, {70, 10}, {10, 25}, {100, 3}}) {
    const EffectiveBatch batch = worst_batch(config, true, longest);
    EXPECT_EQ(batch.supervised_tokens, 2 * 4 * 50) << longest.source;
    EXPECT_EQ(batch.tokens, 2 * 4 * 150) << longest.source;
    int64_t largest = 0;
    for (const auto& slots : cut(batch, cut_limits(config, true, 4), true)) {
      int64_t tokens = 0;
      for (const int64_t slot : slots) tokens += token_count(batch.samples[static_cast<size_t>(slot)], true);
      largest = std::max(largest, tokens);
    }
    EXPECT_GE(largest, 4 * 150 * 98 / 100) << longest.source;
  }
  config.training.effective_batch_size = 3;
  EXPECT_EQ(worst_batch(config, true).tokens, 3 * 150) << "all samples of a step in one micro-batch";
}

// One long sample takes more memory for attention than two of half its length.
TEST(WorstBatch, HasTheLongestSampleWhereFewFillTheBudget) {
  Config config;
  config.data.packing = true;
  config.training.batch_size = 1;
  config.training.effective_batch_size = 100;
  config.data.max_source_length = 704;
  config.data.max_target_length = 96;
  const EffectiveBatch batch = worst_batch(config, true, {632, 72});
  int64_t longest = 0;
  for (const Sample& sample : batch.samples)
    longest = std::max(longest, static_cast<int64_t>(sample.input_ids.size()));
  EXPECT_EQ(longest, 632);
  EXPECT_EQ(batch.tokens, 2 * (704 + 96));
}

TEST(WorstBatch, FillsPackedRows) {
  Config config;
  config.data.packing = true;
  config.data.max_length = 100;
  config.training.batch_size = 2;
  config.training.effective_batch_size = 100;
  const auto tokens = [&](int64_t longest) { return worst_batch(config, false, {longest, 0}).tokens; };
  EXPECT_EQ(tokens(0), 400);
  EXPECT_EQ(tokens(70), 400);
  EXPECT_EQ(tokens(3), 400);
  config.training.effective_batch_size = 2;
  EXPECT_EQ(tokens(70), 140) << "all samples of a step in one row";
  config.training.micro_batching = MicroBatching::samples;
  config.training.effective_batch_size = 100;
  EXPECT_EQ(tokens(70), 280);
}

TEST(WorstBatch, HasARowOfManyShortSamplesForAGpu) {
  Config config;
  config.data.max_length = 100;
  config.training.batch_size = 2;
  config.training.effective_batch_size = 40;
  // The most samples in a micro-batch whose samples are of several lengths.
  const auto most_in_a_row = [&](const SampleLengths& lengths = {}, int64_t ranks = 1) {
    const EffectiveBatch batch = worst_batch(config, false, lengths, ranks, c10::kCUDA);
    size_t most = 0;
    for (const auto& slots : cut(batch, cut_limits(config, false, 2), false)) {
      std::set<size_t> found;
      for (const int64_t slot : slots)
        found.insert(batch.samples[static_cast<size_t>(slot)].input_ids.size());
      if (found.size() > 1) most = std::max(most, slots.size());
    }
    return most;
  };
  EXPECT_EQ(most_in_a_row(), 40);
  EXPECT_EQ(most_in_a_row({}, 4), 37) << "all but one of each other rank";
  EXPECT_EQ(most_in_a_row({100, 0, {50, 60, 70, 80}}), 3) << "of these data";
  EXPECT_EQ(most_in_a_row({100, 0, {80, 90, 90, 90}}), 2);
  EXPECT_EQ(most_in_a_row({100, 0, {10, 10}}), 20) << "the list begins again";
  config.training.effective_batch_size = 9;
  EXPECT_EQ(most_in_a_row({50, 0, {2, 2, 2, 2, 2, 2, 2, 2, 50}}, 3), 7)
      << "another rank has the long samples";
  config.training.effective_batch_size = 1000;
  EXPECT_EQ(most_in_a_row(), 99) << "two tokens each, one of them supervised";
  config.training.micro_batching = MicroBatching::samples;
  EXPECT_EQ(most_in_a_row(), 2);
  config.training.effective_batch_size = 2;
  EXPECT_EQ(most_in_a_row(), 2) << "all in one micro-batch";
  config.data.packing = false;
  EXPECT_EQ(worst_batch(config, false, {}, 1, c10::kCUDA).tokens, 200);
}

}  // namespace
}  // namespace trainer
