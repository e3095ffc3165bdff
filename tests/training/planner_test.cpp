// What the memory plan chooses in place of auto.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/config/load.h"
#include "trainer/training/solve_plan.h"

#include "support/temporary_directory.h"
#include "training/memory_advice.h"
#include "training/rank_traffic.h"

namespace trainer {
namespace {

void write_model(const std::filesystem::path& directory) {
  std::ofstream(directory / "config.json")
      << R"({"model_type": "t5", "vocab_size": 2000, "d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": 3,
          "num_decoder_layers": 3, "num_heads": 8, "feed_forward_proj": "gated-gelu",
          "tie_word_embeddings": false})";
}

TEST(Planner, ChoosesTheFastestThatFits) {
  const test::TemporaryDirectory directory;
  write_model(directory.path());
  Config config;
  config.training.batch_size = CountOrAuto::automatic();
  config.training.effective_batch_size = 16;
  config.memory.gradient_checkpointing = Recompute::automatic();
  Planner planner(config, directory.path(), {});
  const MemoryPlan largest = planner.choice(16, 0).plan, smallest = planner.choice(1, 6).plan;

  const auto ample = planner.cheapest(largest.total(), false);
  ASSERT_TRUE(ample);
  EXPECT_EQ(ample->plan.batch_size, 16);
  EXPECT_EQ(ample->plan.recompute_blocks, 0);

  const int64_t limit = (largest.total() + smallest.total()) / 2;
  const auto between = planner.cheapest(limit, false);
  ASSERT_TRUE(between);
  EXPECT_LE(between->plan.total(), limit);
  EXPECT_GT(between->cost, ample->cost);
  for (const int64_t size : planner.batch_sizes()) {
    for (int64_t blocks = 0; blocks <= 6; blocks++) {
      const PlanChoice& other = planner.choice(size, blocks);
      EXPECT_TRUE(other.plan.total() > limit || other.cost >= between->cost) << size << " " << blocks;
    }
    const PlanChoice& light = planner.choice(size, Recompute::light(), {});
    EXPECT_TRUE(light.plan.total() > limit || light.cost >= between->cost) << size;
  }
  const Config chosen = planner.with(*between);
  EXPECT_EQ(chosen.effective_batch_size(), 16);
  EXPECT_EQ(chosen.training.batch_size, between->plan.batch_size);

  EXPECT_TRUE(planner.cheapest(smallest.total(), false));
  EXPECT_FALSE(planner.cheapest(smallest.total() - 1, false));
}

// A little more memory than a step without anything that is quick to compute: that is what is made again.
TEST(Planner, MakesQuickOperatorsAgainBeforeItRecomputesBlocks) {
  const test::TemporaryDirectory directory;
  write_model(directory.path());
  Config config;
  config.lora.emplace();
  config.training.effective_batch_size = 4;
  config.training.batch_size = 4;
  config.memory.gradient_checkpointing = Recompute::automatic();
  Planner planner(config, directory.path(), {});
  const MemoryPlan nothing = planner.choice(4, 0).plan,
                   light = planner.choice(4, Recompute::light(), {}).plan;
  ASSERT_LT(light.total(), nothing.total());
  EXPECT_EQ(planner.cheapest(nothing.total(), false).value().plan.recompute_setting(), Recompute(false));
  for (const int64_t limit : {nothing.total() - 1, light.total()})
    EXPECT_EQ(planner.cheapest(limit, false).value().plan.recompute_setting(), Recompute::light());
  const PlanChoice blocks = planner.cheapest(light.total() - 1, false).value();
  EXPECT_GT(blocks.plan.recompute_blocks, 0);
  EXPECT_TRUE(blocks.plan.light);
  EXPECT_GT(blocks.cost, planner.choice(4, Recompute::light(), {}).cost);
}

std::string yaml(const Config& config) {
  std::ostringstream out;
  write_yaml(config, out);
  return out.str();
}

// auto may choose the size of micro-batches, recompute and offload, and nothing that changes numbers.
TEST(Planner, LeavesAllButThreeKeysAsTheyAre) {
  const test::TemporaryDirectory directory;
  write_model(directory.path());
  Config config;
  config.training.batch_size = CountOrAuto::automatic();
  config.training.effective_batch_size = 8;
  config.memory.gradient_checkpointing = Recompute::automatic();
  config.memory.offload.automatic = true;
  Planner planner(config, directory.path(), {});
  const int64_t smallest = planner.as_configured().plan.total(), largest = planner.choice(8, 0).plan.total();
  for (const int64_t limit : {smallest, (smallest + largest) / 2, largest}) {
    const auto found = planner.cheapest(limit, /*whatever=*/false);
    ASSERT_TRUE(found);
    Config chosen = planner.with(*found);
    EXPECT_NE(yaml(chosen), yaml(config));
    chosen.training.batch_size = config.training.batch_size;
    chosen.memory.gradient_checkpointing = config.memory.gradient_checkpointing;
    chosen.memory.offload = config.memory.offload;
    EXPECT_EQ(yaml(chosen), yaml(config));
  }
  EXPECT_FALSE(planner.cheapest(smallest - 1, /*whatever=*/false)) << "8-bit moments or LoRA would fit";
}

// Defaults stay where they fit, and else become numbers that do; what was named stays.
TEST(FilledDefaults, GiveWayWhereTheyWouldNotFit) {
  const test::TemporaryDirectory directory;
  write_model(directory.path());
  const Config config;
  const auto filled = [&](const Config& given, int64_t most) {
    return fill_defaults(given, directory.path(), {}, most);
  };
  Config usual = config;
  usual.training.batch_size = 8;
  usual.memory.gradient_checkpointing = false;
  const int64_t needed = Planner(usual, directory.path(), {}).as_configured().plan.total();
  for (const int64_t ample : {needed, int64_t{0}}) {  // 0: it is not known
    const FilledPlan fits = filled(config, ample);
    EXPECT_FALSE(fits.gave_way);
    EXPECT_EQ(yaml(fits.config), yaml(usual));
    EXPECT_EQ(fits.plan.value().total(), needed);
  }
  const FilledPlan tight = filled(config, needed - 1);
  EXPECT_TRUE(tight.gave_way);
  EXPECT_EQ(tight.usual, needed);
  EXPECT_LT(tight.plan.value().total(), needed);
  EXPECT_EQ(tight.config.effective_batch_size(), 8) << "the update stays the same";
  EXPECT_FALSE(tight.config.training.batch_size.gives_way());
  EXPECT_FALSE(tight.config.memory.gradient_checkpointing.gives_way());
  const FilledPlan hopeless = filled(config, 1);
  EXPECT_EQ(hopeless.config.training.batch_size, 1);
  EXPECT_EQ(hopeless.config.memory.gradient_checkpointing.of(6), 6);

  Config named = config;
  named.training.batch_size = 4;
  EXPECT_EQ(filled(named, 1).config.training.batch_size, 4);
  named.memory.gradient_checkpointing = false;
  EXPECT_EQ(yaml(filled(named, 1).config), yaml(named));
}

// What is `fit` gives way to the smallest beside what is `auto`, so that the smallest plan is shown.
TEST(FilledDefaults, AreTheSmallestBesideAnAutoThatDoesNotFit) {
  const test::TemporaryDirectory directory;
  write_model(directory.path());
  Config smallest;
  smallest.training.batch_size = 1;
  smallest.training.effective_batch_size = 8;
  smallest.memory.gradient_checkpointing = true;
  const int64_t least = Planner(smallest, directory.path(), {}).as_configured().plan.total();
  Config blocks_open, batch_open;
  blocks_open.memory.gradient_checkpointing = Recompute::automatic();
  batch_open.training.batch_size = CountOrAuto::automatic();
  batch_open.training.effective_batch_size = 8;
  for (const Config& given : {blocks_open, batch_open}) {
    const FilledPlan filled = fill_defaults(given, directory.path(), {}, least - 1);
    EXPECT_TRUE(filled.gave_way);
    EXPECT_EQ(filled.config.effective_batch_size(), 8);
    EXPECT_EQ(Planner(filled.config, directory.path(), {}).as_configured().plan.total(), least);
  }
  // Without a limit the usual numbers stay.
  EXPECT_EQ(int64_t{fill_defaults(blocks_open, directory.path(), {}, 0).config.training.batch_size}, 8);
}

TEST(Planner, DividesAStepAmongRanks) {
  const test::TemporaryDirectory directory;
  write_model(directory.path());
  Config config;
  config.training.batch_size = CountOrAuto::automatic();
  config.training.effective_batch_size = 12;
  PlanTarget of_eight;
  of_eight.ranks = 8;
  Planner alone(config, directory.path(), {}), one_of_eight(config, directory.path(), of_eight);
  const MemoryPlan& whole = alone.choice(2, 0).plan;
  const MemoryPlan& part = one_of_eight.choice(2, 0).plan;
  EXPECT_EQ(rank_traffic(config, directory.path(), {}).sent, 0);
  EXPECT_TRUE(rank_traffic(config, directory.path(), of_eight).shards_state);
  // Rank 0 has the embedding table alone, nearly half of this small model.
  EXPECT_LT(part.optimizer_state, whole.optimizer_state / 2);
  // 2 of 12 samples, in one of six micro-batches.
  EXPECT_NEAR(one_of_eight.seconds(part) * 6 / alone.seconds(whole), 1, 1e-9);
}

TEST(MemoryAdvice, WithoutRoomNothingIsOffloaded) {
  const test::TemporaryDirectory directory;
  write_model(directory.path());
  Config config;
  config.training.batch_size = 1;
  const MemoryPlan plan = Planner(config, directory.path(), {}).as_configured().plan;
  MemoryAdvice measures(config, directory.path(), {}, plan);
  const int64_t limit = plan.total() - plan.optimizer_state / 2;
  int64_t needed = 0;
  for (const Saving& measure : measures.fitting(limit)) {
    if (measure.same_result()) needed = measure.plan.offloaded.total();
  }
  ASSERT_GT(needed, 0) << "the optimizer's state has to leave";
  const auto offloads = [&](int64_t room) {
    return std::ranges::any_of(measures.fitting(limit, room),
                               [](const Saving& measure) { return measure.plan.offloaded.total() > 0; });
  };
  EXPECT_TRUE(offloads(needed));
  EXPECT_FALSE(offloads(0));
  EXPECT_FALSE(measures.fitting(limit, 0).empty()) << "Adafactor and LoRA need no room";
}

}  // namespace
}  // namespace trainer
