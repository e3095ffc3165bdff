// Ranks that divide the weights of blocks (parallel.shard: all) do the steps of one that has all.
#include <atomic>

#include "trainer/base/error.h"
#include "trainer/generation/generate.h"
#include "trainer/training/plan.h"

#include "memory/offload.h"
#include "support/temporary_directory.h"
#include "training/rank_traffic.h"
#include "training/steps_of_ranks.h"
#include "weights/block_store.h"

namespace trainer {
namespace {

struct ShardedCase {
  std::string label;
  GoldenRun run;
  std::function<void(Config&)> change = [](Config&) {};
  double tolerance = 1e-6;
};

GoldenRun in_format(const std::string& name, const std::string& form,
                    const std::optional<Quantisation>& quantise) {
  GoldenRun run(name);
  run.form = form;
  run.quantise = quantise;
  return run;
}

class ShardedRanks : public testing::TestWithParam<ShardedCase> {
 protected:
  ShardedRanks() { set_offload_directory(directory_.path()); }

 private:
  test::TemporaryDirectory directory_;
};

// Weights are the same wherever they come from. So with frozen ones, losses have the bits of as many ranks
// that divide nothing else. Trained ones are sharded in another way, and the norm's sum has another order.
TEST_P(ShardedRanks, DoTheStepsOfUnshardedOnes) {
  Config config = config_of_ranks(Shard::optimizer);
  config.memory.gradient_checkpointing = true;
  GetParam().change(config);
  const std::vector<After> whole = on_ranks(3, GetParam().run, config);
  const After one = six_steps(GetParam().run, config, Ranks::none());
  config.parallel.shard = Shard::all;
  const std::vector<After> sharded = on_ranks(3, GetParam().run, config);
  const bool frozen = one.weights.begin()->first.find("lora_") != std::string::npos;
  for (const After& rank : sharded) {
    expect_same_bits(sharded.front(), rank);
    EXPECT_LE(distance(one.weights, rank.weights), GetParam().tolerance);
    if (frozen) expect_same_bits(whole.front(), rank);
    for (size_t step = 0; step < one.losses.size(); step++)
      EXPECT_NEAR(rank.losses[step], one.losses[step], GetParam().tolerance * one.losses[step]) << step;
  }
}

std::ostream& operator<<(std::ostream& out, const ShardedCase& c) { return out << c.label; }

INSTANTIATE_TEST_SUITE_P(
    Runs, ShardedRanks,
    testing::Values(
        ShardedCase{"t5_lora", "t5_v1_1_lora"}, ShardedCase{"llama_lora", "llama_lora"},
        ShardedCase{"fused_lora", "phi3_lora"},
        ShardedCase{"nf4", in_format("qwen2_lora", "model", Quantisation{})},
        ShardedCase{"nf4_plain_scales", in_format("llama_lora", "model", Quantisation{false})},
        ShardedCase{"fp8", in_format("qwen2_lora", "model", Quantisation{.format = "fp8"})},
        ShardedCase{"stored_fp8", in_format("llama_fp8", "block", std::nullopt)},
        ShardedCase{"packed", "qwen2", [](Config& c) { c.data.packing = true; }},
        ShardedCase{"fp32_gradients", "qwen3", [](Config& c) { c.optimizer.grad_dtype = StateDtype::fp32; }},
        ShardedCase{"adafactor", "t5_v1_1", [](Config& c) { c.optimizer.name = "adafactor"; }},
        ShardedCase{"adamw_8bit", "qwen2", [](Config& c) { c.optimizer.name = "adamw_8bit"; }, 1e-4},
        ShardedCase{"offloaded_activations", "qwen2",
                    [](Config& c) { c.memory.offload.activations = true; }}),
    [](const auto& param) { return param.param.label; });

// Each rank has its part of the blocks' matrices from the start, and of the optimizer's state.
TEST(ShardedWeights, AreWithOneRankEach) {
  std::atomic<int64_t> own{0}, all{0};
  in_ranks(3, [&](const Ranks& ranks) {
    const Golden golden = golden_of("llama", config_of_ranks(Shard::all), ranks);
    for (Module* block : golden.model->blocks()) {
      for (const Parameter* weight : large_weights(*block)) {
        if (ranks.is_first()) all += weight->numel();
        if (!weight->value.is_of_other_rank()) own += weight->numel();
        EXPECT_EQ(weight->value.tensor().is_meta(), weight->value.is_of_other_rank());
      }
    }
  });
  EXPECT_GT(all, 0);
  EXPECT_EQ(own, all);
}

// Whichever rank an allocation fails on, it alone repeats its part, and fetches the blocks again.
TEST(ShardedWeights, ARankThatRunsOutOfMemoryRecoversAlone) {
  install_host_allocator();
  for (const char* name : {"qwen2", "qwen2_lora"}) {
    const Config config = config_of_ranks(Shard::all);
    const After one = six_steps(name, config, Ranks::none());
    int64_t recovered = 0;
    for (int64_t n = 2; n < 500; n += 41) {
      const std::vector<After> two = on_ranks(2, name, config, n);
      expect_same_bits(two.at(0), two.at(1));
      EXPECT_LE(distance(one.weights, two.at(0).weights), 1e-5) << n;
      recovered += two.at(0).retries + two.at(1).retries > 0;
      EXPECT_TRUE(two.at(0).retries == 0 || two.at(1).retries == 0);
    }
    EXPECT_GE(recovered, 5) << name;
  }
}

// What fails on one rank, here in the middle of its blocks, ends all with its error.
TEST(ShardedWeights, AnErrorOfOneRankEndsAll) {
  std::atomic<int64_t> told{0};
  in_ranks(3, [&](const Ranks& ranks) {
    const Config config = config_of_ranks(Shard::all);
    const Golden golden = golden_of("qwen2", config, ranks);
    Trainer trainer(config, *golden.model, at::kCPU, 10, make_optimizer, ranks);
    Model& model = *golden.model;
    const auto enter = model.around_block;
    int64_t entered = 0;
    if (ranks.rank() == 1) {
      model.around_block = [&](const Module& block, BlockPass pass) {
        if (++entered == 3) throw DataError("bad weather");
        return enter(block, pass);
      };
    }
    try {
      trainer.step(batch_of_step(golden, 0, ranks));
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "rank 1: bad weather");
      told++;
    }
  });
  EXPECT_EQ(told, 3);
}

TEST(ShardedWeights, ARankThatIsGoneIsLost) {
  std::atomic<int64_t> lost{0};
  in_ranks(3, [&](const Ranks& ranks) {
    const Config config = config_of_ranks(Shard::all);
    const Golden golden = golden_of("qwen2", config, ranks);
    Trainer trainer(config, *golden.model, at::kCPU, 10, make_optimizer, ranks);
    trainer.step(batch_of_step(golden, 0, ranks));
    if (ranks.rank() == 2) return ranks.notify_end({2, 9, "gone"});
    try {
      trainer.step(batch_of_step(golden, 1, ranks));
    } catch (const LostRank&) {
      lost++;
      ranks.notify_end({ranks.rank(), 8, "lost"});
    }
  });
  EXPECT_EQ(lost, 2);
}

// The traffic that `trainer plan` tells of is what is sent, here by the rank that sends most.
TEST(ShardedWeights, TravelAsPlanned) {
  const Config config = config_of_ranks(Shard::all);
  PlanTarget target;
  target.ranks = 2;
  const auto directory = golden_directory("llama") / "model";
  Config full = config;
  full.training.batch_size = 100;
  const RankTraffic traffic = rank_traffic(full, directory, target);
  int64_t sharded = 0;
  in_ranks(2, [&](const Ranks& ranks) {
    const Golden golden = golden_of("llama", config, ranks);
    Trainer trainer(full, *golden.model, at::kCPU, 10, make_optimizer, ranks);
    const int64_t before = ranks.bytes_given();
    trainer.step(batch_of_step(golden, 0, ranks));
    const std::vector<double> all =
        all_reduce(ranks, {static_cast<double>(ranks.bytes_given() - before)}, Channel::steps);
    if (!ranks.is_first()) return;
    for (Module* block : golden.model->blocks()) {
      for (const Parameter* weight : large_weights(*block)) sharded += weight->value.nbytes();
    }
    EXPECT_TRUE(traffic.shards_weights);
    // The blocks at both ends are still there when backward and the next forward pass need them.
    EXPECT_GT(all.front(), static_cast<double>(sharded));
  });
  EXPECT_GE(traffic.fetched, sharded);
  EXPECT_LE(traffic.fetched, 2 * sharded);
}

// Of 30 equal blocks each rank plans its half, and two buffers for what it lacks of a block.
TEST(ShardedWeights, AreNotInThePlanOfARankThatHasThemNot) {
  const std::filesystem::path model = std::filesystem::path(SOURCE_DIR) / "configs/models/smollm2-135m.json";
  Config config = config_of_ranks(Shard::optimizer);
  config.memory.gradient_checkpointing = true;
  PlanTarget target;
  target.ranks = 2;
  const MemoryPlan whole = plan_memory(config, model, target);
  config.parallel.shard = Shard::all;
  const MemoryPlan sharded = plan_memory(config, model, target);
  const int64_t block = 4 * 576 * (2 * 576 + 2 * 192 + 3 * 1536), half = 15 * block;
  EXPECT_GE(sharded.weights, whole.weights - half + 2 * block / 3);
  EXPECT_LE(sharded.weights, whole.weights - half + 2 * block);
  EXPECT_EQ(sharded.recompute_blocks, sharded.num_blocks);
  target.ranks = 1;
  EXPECT_EQ(plan_memory(config, model, target).weights, whole.weights);
}

// Ranks generate other prompts, and as many tokens as their answers have.
TEST(ShardedWeights, AnswerAsUnshardedOnes) {
  GenerationConfig generation;
  generation.max_new_tokens = 5;
  for (const char* name : {"t5_v1_1", "qwen2"}) {
    const Golden whole(name);
    in_ranks(2, [&](const Ranks& ranks) {
      const Config config = config_of_ranks(Shard::all);
      const Golden golden = golden_of(name, config, ranks);
      Trainer trainer(config, *golden.model, at::kCPU, 10, make_optimizer, ranks);
      const Model& model = *golden.model;
      for (int64_t i = 0; i < 1 + ranks.rank(); i++) {
        const std::vector<std::vector<int32_t>> prompts{
            golden.batch.samples[static_cast<size_t>(i)].input_ids};
        EXPECT_EQ(generate(*golden.model, prompts, generation, at::kCPU),
                  generate(*whole.model, prompts, generation, at::kCPU));
      }
      model.after_share();
    });
  }
}

}  // namespace
}  // namespace trainer
