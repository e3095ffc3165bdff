// What the memory plan chooses in place of auto.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/training/solve_plan.h"

#include "support/temporary_directory.h"

namespace trainer {
namespace {

TEST(Planner, ChoosesTheFastestThatFits) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "config.json")
      << R"({"model_type": "t5", "vocab_size": 2000, "d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": 3,
          "num_decoder_layers": 3, "num_heads": 8, "feed_forward_proj": "gated-gelu",
          "tie_word_embeddings": false})";
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
  }
  const Config chosen = planner.with(*between);
  EXPECT_EQ(chosen.effective_batch_size(), 16);
  EXPECT_EQ(chosen.training.batch_size, between->plan.batch_size);

  EXPECT_TRUE(planner.cheapest(smallest.total(), false));
  EXPECT_FALSE(planner.cheapest(smallest.total() - 1, false));
}

}  // namespace
}  // namespace trainer
