// The order of samples, and how a step is split into micro-batches.
#include "trainer/data/batching.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "data/fixture.h"

namespace trainer {
namespace {

std::vector<int64_t> epoch(const SampleOrder& order, int64_t size, int64_t number) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < size; i++) indices.push_back(order.index_at(number * size + i));
  return indices;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> up_to(int64_t size) {
  std::vector<int64_t> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(SampleOrderTest, EverySampleOnceAnEpoch) {
  for (int64_t size : {1, 2, 3, 7, 64, 1000}) {
    const SampleOrder order(size, true, 42);
    for (int64_t number = 0; number < 3; number++) EXPECT_EQ(sorted(epoch(order, size, number)), up_to(size));
  }
}

TEST(SampleOrderTest, EpochsAndSeedsDiffer) {
  const SampleOrder order(100, true, 1), other(100, true, 2);
  EXPECT_NE(epoch(order, 100, 0), up_to(100));
  EXPECT_NE(epoch(order, 100, 0), epoch(order, 100, 1));
  EXPECT_NE(epoch(order, 100, 0), epoch(other, 100, 0));
  EXPECT_EQ(epoch(order, 100, 1), epoch(SampleOrder(100, true, 1), 100, 1));
}

TEST(SampleOrderTest, WithoutShufflingItIsTheOrderOfTheFile) {
  const SampleOrder order(5, false, 42);
  EXPECT_EQ(order.step_at(0, 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(order.step_at(3, 3), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(order.step_at(5, 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(order.epoch_at(4), 0);
  EXPECT_EQ(order.epoch_at(5), 1);
}

TEST(SampleOrderTest, StepsCoverTheEpochAndTheLastOneIsSmaller) {
  const SampleOrder order(10, true, 7);
  EXPECT_EQ(steps_per_epoch(10, 4), 3);
  EXPECT_EQ(steps_per_epoch(8, 4), 2);
  EXPECT_EQ(steps_per_epoch(3, 4), 1);
  std::vector<int64_t> seen;
  std::vector<size_t> sizes;
  for (int64_t consumed = 0; consumed < 10;) {
    const auto step = order.step_at(consumed, 4);
    sizes.push_back(step.size());
    seen.insert(seen.end(), step.begin(), step.end());
    consumed += static_cast<int64_t>(step.size());
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{4, 4, 2}));
  EXPECT_EQ(seen, epoch(order, 10, 0));
}

TEST(SampleOrderTest, AnyPositionCanBeComputedAlone) {
  const int64_t huge = 1'000'000'000'000;
  const int64_t index = SampleOrder(huge, true, 3).index_at(5 * huge + 123'456'789);
  EXPECT_GE(index, 0);
  EXPECT_LT(index, huge);
}

using EffectiveBatchTest = DataTest;

TEST_F(EffectiveBatchTest, CountsTokensAndSupervision) {
  const char* rows =
      "{\"prompt\": \"one two\", \"completion\": \"three\"}\n{\"prompt\": \"four\", \"completion\": \"five "
      "six\"}\n";
  const EffectiveBatch t5 = load_effective_batch(data(rows), {1, 0});
  ASSERT_EQ(t5.samples.size(), 2u);
  EXPECT_EQ(t5.samples[0].input_ids, (Ids{7, 1}));
  EXPECT_EQ(t5.supervised_tokens, 3 + 2);
  EXPECT_EQ(t5.tokens, 2 + 3 + 3 + 2);
  const EffectiveBatch decoder = load_effective_batch(data(rows, false), {1, 0});
  EXPECT_EQ(decoder.supervised_tokens, 3 + 2);
  EXPECT_EQ(decoder.tokens, 5 + 5);
}

TEST(SupervisedTokens, TheFirstTokenOfADecoderIsNeverPredicted) {
  EXPECT_EQ(supervised_tokens({{4, 5, 6}, {4, 5, 6}}, false), 2);
  EXPECT_EQ(supervised_tokens({{4, 5, 6}, {kIgnore, 5, kIgnore}}, false), 1);
  EXPECT_EQ(supervised_tokens({{4, 5}, {6, kIgnore, 7}}, true), 2);
  EXPECT_EQ(supervised_tokens({}, false), 0);
}

TEST(SupervisedTokens, HaveTheWeightsOfTheirSample) {
  EXPECT_EQ(supervised_weight({{4, 5, 6}, {kIgnore, 5, kIgnore}}, false), 1);
  EXPECT_EQ(supervised_weight({{4, 5, 6}, {4, 5, kIgnore}, {8, 0.5, 4}}, false), 0.5);
  EXPECT_EQ(supervised_weight({{4}, {6, kIgnore, 7}, {0.25, 9, 2}}, true), 2.25);
}

EffectiveBatch of_lengths(const std::vector<std::pair<size_t, size_t>>& lengths) {
  EffectiveBatch batch;
  for (const auto& [source, target] : lengths) batch.samples.push_back({Ids(source, 5), Ids(target, 6)});
  return batch;
}

using Cut = std::vector<std::vector<int64_t>>;

TEST(SplitTest, BySamplesIsPlainGroupsInOrder) {
  const EffectiveBatch batch = of_lengths({{1, 1}, {9, 9}, {2, 2}, {8, 8}, {3, 3}});
  CutLimits limits;
  limits.by = MicroBatching::samples;
  limits.batch_size = 2;
  EXPECT_EQ(cut(batch, limits, true), (Cut{{0, 1}, {2, 3}, {4}}));
}

TEST(SplitTest, ByTokensGoesFromLongToShort) {
  const EffectiveBatch batch = of_lengths({{2, 1}, {10, 1}, {5, 1}, {5, 2}, {4, 1}, {2, 1}});
  CutLimits limits{MicroBatching::tokens, 1, 10, 10};
  EXPECT_EQ(cut(batch, limits, true), (Cut{{1}, {3, 2}, {4}, {0, 5}}));
}

TEST(SplitTest, TheSharesOfABatchHaveDistinctSlotsAndAllOfThem) {
  EffectiveBatch batch = of_lengths({{2, 1}, {10, 1}, {5, 1}, {5, 2}, {4, 1}});
  for (const MicroBatching by : {MicroBatching::samples, MicroBatching::tokens}) {
    const CutLimits limits{by, 2, 10, 10};
    std::vector<int64_t> slots;
    for (int64_t rank = 0; rank < 2; rank++) {
      batch.share = {rank, 2};
      for (const auto& micro_batch : cut(batch, limits, true))
        slots.insert(slots.end(), micro_batch.begin(), micro_batch.end());
      EXPECT_EQ(slots.size(), rank == 0 ? 2 : 5);  // 16 tokens each
    }
    std::ranges::sort(slots);
    EXPECT_EQ(slots, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  }
}

TEST(SplitTest, TargetsHaveTheirOwnBudget) {
  const EffectiveBatch batch = of_lengths({{4, 3}, {3, 9}, {2, 3}, {1, 3}});
  CutLimits limits{MicroBatching::tokens, 1, 100, 10};
  EXPECT_EQ(cut(batch, limits, true), (Cut{{0}, {1}, {2, 3}}));
  EXPECT_EQ(cut(batch, limits, false), (Cut{{0, 1, 2, 3}}));
}

// Slots 0 and 3 are a group, 2 and 4 another.
EffectiveBatch with_groups() {
  EffectiveBatch batch = of_lengths({{2, 2}, {9, 9}, {4, 4}, {6, 6}, {3, 3}, {5, 5}});
  batch.samples[0].group = batch.samples[3].group = 7;
  batch.samples[2].group = batch.samples[4].group = 0;
  return batch;
}

TEST(SplitTest, AGroupOfSamplesStaysTogether) {
  EffectiveBatch batch = with_groups();
  CutLimits limits{MicroBatching::samples, 3, 10, 10};
  EXPECT_EQ(cut(batch, limits, false), (Cut{{0, 3, 1}, {2, 4, 5}}));
  limits.batch_size = 1;
  EXPECT_EQ(cut(batch, limits, false), (Cut{{0, 3}, {1}, {2, 4}, {5}}));
  limits.by = MicroBatching::tokens;
  EXPECT_EQ(cut(batch, limits, false), (Cut{{1}, {0, 3}, {5}, {2, 4}})) << "longest first";
  limits.packing = true;  // rows of 10 tokens: 9, 2 + 6, 5, 4 + 3
  EXPECT_EQ(cut(batch, limits, false), (Cut{{1}, {0, 3}, {5}, {2, 4}}));
  limits.batch_size = 2;
  EXPECT_EQ(cut(batch, limits, false), (Cut{{1, 0, 3}, {5, 2, 4}}));
  EXPECT_EQ(cut_as(batch, limits.by, {3, 3}, packed_budget(limits, false)), cut(batch, limits, false));
  limits.halvings = 70;
  EXPECT_EQ(cut(batch, limits, false), (Cut{{1}, {0, 3}, {5}, {2, 4}}));
  limits.packing = false;
  EXPECT_EQ(cut_as(batch, limits.by, {1, 2, 1, 2}), cut(batch, limits, false));
  EXPECT_FALSE(can_be_split(batch, {0, 3}));
  EXPECT_TRUE(can_be_split(batch, {0, 3, 1}));
  EXPECT_FALSE(can_be_split(batch, {1}));
}

TEST(SplitTest, AGroupOfSamplesStaysOnOneRank) {
  EffectiveBatch batch = with_groups();
  batch.share = {0, 3};
  EXPECT_EQ(batch.own_slots(), (std::vector<int64_t>{1}));
  batch.share = {1, 3};
  EXPECT_EQ(batch.own_slots(), (std::vector<int64_t>{0, 3}));
  batch.share = {2, 3};
  EXPECT_EQ(batch.own_slots(), (std::vector<int64_t>{2, 4, 5}));
}

CutLimits packing(int64_t batch_size, int64_t max_length) {
  CutLimits limits{MicroBatching::tokens, batch_size, max_length};
  limits.packing = true;
  return limits;
}

TEST(SplitTest, PackedSamplesFillTheRoomThatOthersLeave) {
  const EffectiveBatch batch = of_lengths({{3, 3}, {6, 6}, {7, 7}, {4, 4}, {0, 0}});
  EXPECT_EQ(packed_budget(packing(1, 10), false).tokens, 10);
  // 7 + 3, 6 + 4; the empty sample takes one token and fits into neither
  EXPECT_EQ(cut(batch, packing(1, 10), false), (Cut{{2, 0}, {1, 3}, {4}}));
  EXPECT_EQ(cut(batch, packing(2, 10), false), (Cut{{2, 1, 3, 0}, {4}}));
  EXPECT_EQ(cut(batch, packing(3, 10), false), (Cut{{2, 1, 3, 0, 4}}));
}

TEST(SplitTest, NoPackedSampleIsLostOrTruncatedAndNoRowExceedsItsBudget) {
  EffectiveBatch batch;
  int64_t tokens = 0;
  for (size_t i = 0; i < 500; i++) {
    const size_t length = 1 + (i * i * 7919 + i * 13) % 97;
    batch.samples.push_back({Ids(length, 5), Ids(length, 5)});
    tokens += static_cast<int64_t>(length);
  }
  for (const int64_t rows : {1, 3, 8}) {
    const Cut groups = cut(batch, packing(rows, 100), false);
    std::set<int64_t> seen;
    for (const auto& group : groups) {
      int64_t size = 0;
      for (const int64_t slot : group) {
        EXPECT_TRUE(seen.insert(slot).second);
        size += packed_tokens(batch.samples[static_cast<size_t>(slot)]);
      }
      EXPECT_LE(size, rows * 100);
    }
    EXPECT_EQ(seen.size(), batch.samples.size());
    // The tokens alone need so many; a twentieth more is allowed for lengths that leave gaps.
    EXPECT_LE(static_cast<int64_t>(groups.size()), tokens / (rows * 100) * 21 / 20 + 1);
    EXPECT_EQ(groups, cut(batch, packing(rows, 100), false));
  }
}

TEST(SplitTest, PackedSourcesAndTargetsEachHaveABudget) {
  // Shares of the budgets of 10 and 5: 0.9, 1, 0.4, 0.2.
  const EffectiveBatch batch = of_lengths({{9, 1}, {1, 5}, {1, 2}, {0, 0}});
  CutLimits limits = packing(1, 10);
  limits.max_target_length = 5;
  EXPECT_EQ(packed_budget(limits, true).target_tokens, 5);
  EXPECT_EQ(cut(batch, limits, true), (Cut{{1}, {0, 2}, {3}})) << "the empty sample takes one token of each";
  limits.batch_size = 2;
  EXPECT_EQ(cut(batch, limits, true), (Cut{{1, 0, 2, 3}}));
}

TEST(SplitTest, HalvingMakesPackedRowsSmallerDownToSingleSamples) {
  const EffectiveBatch batch = of_lengths({{9, 9}, {5, 5}, {4, 4}, {1, 1}});
  CutLimits limits = packing(2, 10);
  EXPECT_EQ(cut(batch, limits, false).size(), 1u);
  limits.halvings = 1;
  EXPECT_EQ(cut(batch, limits, false), (Cut{{0, 3}, {1, 2}}));
  limits.halvings = 70;
  EXPECT_EQ(packed_budget(limits, false).tokens, 1);
  EXPECT_EQ(cut(batch, limits, false), (Cut{{0}, {1}, {2}, {3}}));
}

TEST(SplitTest, PackedBySamplesIsPlainGroupsInOrder) {
  CutLimits limits = packing(2, 10);
  limits.by = MicroBatching::samples;
  EXPECT_EQ(packed_budget(limits, false).tokens, 0);
  EXPECT_EQ(cut(of_lengths({{1, 1}, {9, 9}, {2, 2}}), limits, false), (Cut{{0, 1}, {2}}));
}

TEST(SplitAsTest, PackedRowsAreThoseOfTheirBudget) {
  const EffectiveBatch batch = of_lengths({{3, 3}, {6, 6}, {7, 7}, {4, 4}, {2, 2}});
  for (const int64_t rows : {1, 2, 4}) {
    const Cut groups = cut(batch, packing(rows, 10), false);
    std::vector<int64_t> sizes;
    for (const auto& group : groups) sizes.push_back(static_cast<int64_t>(group.size()));
    EXPECT_EQ(cut_as(batch, MicroBatching::tokens, sizes, {rows * 10}), groups);
  }
  EXPECT_THROW(cut_as(batch, MicroBatching::tokens, {1, 1, 1, 1, 1}, {20}), DataError);
}

TEST(SplitTest, ASampleLargerThanTheBudgetGoesAlone) {
  const EffectiveBatch batch = of_lengths({{3, 1}, {50, 1}, {3, 1}});
  CutLimits limits{MicroBatching::tokens, 1, 10, 10};
  EXPECT_EQ(cut(batch, limits, true), (Cut{{1}, {0, 2}}));
}

TEST(SplitTest, ByTokensAvoidsPaddingThatCostsMoreThanAnotherMicroBatch) {
  const EffectiveBatch batch = of_lengths({{500, 1}, {10, 1}, {10, 1}, {490, 1}, {10, 1}, {10, 1}});
  CutLimits limits{MicroBatching::tokens, 8, 512, 512};
  EXPECT_EQ(cut(batch, limits, true), (Cut{{0, 3}, {1, 2, 4, 5}}));
  const EffectiveBatch alike = of_lengths({{60, 1}, {10, 1}, {20, 1}});
  EXPECT_EQ(cut(alike, limits, true), (Cut{{0, 2, 1}})) << "a few tokens of padding are cheaper";
}

TEST(SplitTest, RandomBatchesKeepEverySlotAndTheBudgets) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 500; round++) {
    CutLimits limits{MicroBatching::tokens, draw(1, 8), draw(1, 40), draw(1, 40)};
    const bool encoder_decoder = draw(0, 1) == 1;
    std::vector<std::pair<size_t, size_t>> lengths(static_cast<size_t>(draw(1, 60)));
    for (auto& [source, target] : lengths)
      source = static_cast<size_t>(draw(1, 50)), target = static_cast<size_t>(draw(1, 50));
    const EffectiveBatch batch = of_lengths(lengths);
    std::vector<int64_t> slots;
    for (const auto& group : cut(batch, limits, encoder_decoder)) {
      ASSERT_FALSE(group.empty());
      slots.insert(slots.end(), group.begin(), group.end());
      size_t source = 0, target = 0;
      for (const int64_t slot : group) {
        source = std::max(source, lengths[static_cast<size_t>(slot)].first);
        target = std::max(target, lengths[static_cast<size_t>(slot)].second);
      }
      if (group.size() == 1) continue;
      EXPECT_LE(static_cast<int64_t>(group.size() * source), limits.batch_size * limits.max_source_length);
      if (encoder_decoder) {
        EXPECT_LE(static_cast<int64_t>(group.size() * target), limits.batch_size * limits.max_target_length);
      }
    }
    EXPECT_EQ(sorted(slots), up_to(static_cast<int64_t>(lengths.size())));
  }
}

TEST(SplitTest, HalvedBudgetsEndAtSingleSamples) {
  const EffectiveBatch samples = of_lengths({{9, 1}, {8, 1}, {2, 1}, {2, 1}, {2, 1}, {1, 1}});
  for (const MicroBatching by : {MicroBatching::tokens, MicroBatching::samples}) {
    size_t before = 0;
    for (const int64_t halvings : {0, 1, 2, 3, 10, 63, 100}) {
      CutLimits limits{by, 6, 9, 9};
      limits.halvings = halvings;
      const auto groups = cut(samples, limits, true);
      EXPECT_GE(groups.size(), before);
      before = groups.size();
    }
    EXPECT_EQ(before, samples.samples.size());
  }
}

TEST(SplitTest, ARecordedSplitIsRepeated) {
  const EffectiveBatch samples = of_lengths({{1, 1}, {9, 1}, {2, 1}, {8, 1}, {2, 1}, {2, 1}});
  for (const MicroBatching by : {MicroBatching::tokens, MicroBatching::samples}) {
    CutLimits limits{by, 3, 9, 9};
    limits.overhead_tokens = 0;
    const auto groups = cut(samples, limits, true);
    ASSERT_GT(groups.size(), 1u);
    std::vector<int64_t> counts;
    for (const auto& group : groups) counts.push_back(static_cast<int64_t>(group.size()));
    EXPECT_EQ(cut_as(samples, by, counts), groups);
  }
  EXPECT_THROW(cut_as(samples, MicroBatching::tokens, {3, 2}), DataError);
  EXPECT_THROW(cut_as(samples, MicroBatching::tokens, {7, -1}), DataError);
}

}  // namespace
}  // namespace trainer
