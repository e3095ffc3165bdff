// Steps of several ranks, compared with the same steps of one.
#include "training/placement.h"
#include "training/rank_traffic.h"
#include "training/steps_of_ranks.h"

namespace trainer {
namespace {

class ManyRanks : public testing::TestWithParam<std::tuple<std::string, int64_t, Shard>> {};

TEST_P(ManyRanks, DoTheUpdatesOfOne) {
  const auto& [name, count, shard] = GetParam();
  const Config config = config_of_ranks(shard);
  expect_updates_of_one(six_steps(name, config, Ranks::none()), on_ranks(count, name, config));
}

INSTANTIATE_TEST_SUITE_P(Runs, ManyRanks,
                         testing::Combine(testing::Values("t5_v1_1", "qwen2", "qwen2_lora"),
                                          testing::Values(2, 3, 4),
                                          testing::Values(Shard::none, Shard::optimizer, Shard::all)),
                         [](const auto& run) {
                           const Shard shard = std::get<2>(run.param);
                           return std::get<0>(run.param) + "_" + std::to_string(std::get<1>(run.param)) +
                                  (shard == Shard::none        ? "_none"
                                   : shard == Shard::optimizer ? "_optimizer"
                                                               : "_all");
                         });

TEST(Ranks, TheSameNumberGivesTheSameBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Config config = config_of_ranks(Shard::optimizer);
    GoldenRun run("t5_v1_1");
    run.dtype = dtype;
    expect_same_bits(on_ranks(3, run, config).at(1), on_ranks(3, run, config).at(2));
  }
}

TEST(Ranks, DivideTheStateOfTheOptimizerForFullFineTuningOnly) {
  const Config full = config_of_ranks(Shard::automatic);
  const int64_t whole = six_steps("qwen2", full, Ranks::none()).state_bytes;
  int64_t sum = 0;
  for (const After& rank : on_ranks(2, "qwen2", full)) {
    EXPECT_LT(rank.state_bytes, whole * 6 / 10);
    sum += rank.state_bytes;
  }
  EXPECT_EQ(sum, whole);

  Config lora = full;
  lora.lora = LoraConfig{};
  for (const After& rank : on_ranks(2, "qwen2_lora", lora))
    EXPECT_EQ(rank.state_bytes, six_steps("qwen2_lora", lora, Ranks::none()).state_bytes);
}

// The plan counts the least that must travel: with two ranks, half of what a sum or a copy is given, and for
// a sum that both shall have as much again on its way back.
TEST(Ranks, ExchangeNoMoreThanThePlanCounts) {
  for (const Shard shard : {Shard::none, Shard::optimizer}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Config config = config_of_ranks(shard);
      config.optimizer.grad_dtype = StateDtype::fp32;
      PlanTarget target;
      target.dtype = dtype;
      target.ranks = 2;
      const RankTraffic planned = rank_traffic(config, golden_directory("t5_v1_1") / "model", target);
      ASSERT_GT(planned.sent, 0);
      GoldenRun run("t5_v1_1");
      run.dtype = dtype;
      for (const After& rank : on_ranks(2, run, config)) {
        for (const int64_t given : rank.exchanged)
          EXPECT_EQ(shard == Shard::none ? given : given / 2, planned.sent);
      }
    }
  }
  EXPECT_EQ(six_steps("t5_v1_1", config_of_ranks(Shard::none), Ranks::none()).exchanged.at(0), 0);
}

// As docs/dev/parallel.md says.
TEST(Ranks, HaveEvenPartsOfLargeModels) {
  for (const char* card : {"flan-t5-xl.json", "qwen2.5-7b.json"}) {
    const std::unique_ptr<Model> model = model_on_meta(
        std::filesystem::path(SOURCE_DIR) / "configs/models" / card, at::kBFloat16, /*train_all=*/true);
    const std::vector<TrainedParameter> parameters = trained_parameters(*model);
    for (const int64_t count : {2, 4, 8}) {
      const auto owners =
          owners_among(Ranks::planned(count), config_of_ranks(Shard::optimizer), /*divided=*/{}, parameters);
      std::vector<double> elements(static_cast<size_t>(count));
      for (const TrainedParameter& parameter : parameters)
        elements.at(static_cast<size_t>(owners.at(parameter.name))) +=
            static_cast<double>(parameter.value.numel());
      const double even = std::accumulate(elements.begin(), elements.end(), 0.0) / static_cast<double>(count);
      EXPECT_LE(std::ranges::max(elements) / even, 1.004) << card << ", " << count;
    }
  }
}

TEST(Ranks, AnUpdateOfAllOptimizersIsThatOfOne) {
  for (const char* name : {"adafactor", "adamw_8bit"}) {
    Config config = config_of_ranks(Shard::optimizer);
    config.optimizer.name = name;
    const After one = six_steps("qwen2", config, Ranks::none());
    // A code of 8 bits may fall on the other side of a border.
    EXPECT_LE(distance(one.weights, on_ranks(2, "qwen2", config).at(1).weights),
              std::string(name) == "adafactor" ? 1e-6 : 1e-4)
        << name;
  }
}

// Whichever rank an allocation fails on, it alone repeats its part.
TEST(Ranks, ARankThatRunsOutOfMemoryRecoversAlone) {
  install_host_allocator();
  const Config config = config_of_ranks(Shard::optimizer);
  const After one = six_steps("qwen2", config, Ranks::none());
  int64_t recovered = 0, alone = 0;
  for (int64_t n = 2; n < 400; n += 31) {
    const std::vector<After> two = on_ranks(2, "qwen2", config, n);
    expect_same_bits(two.at(0), two.at(1));
    EXPECT_LE(distance(one.weights, two.at(0).weights), 1e-5) << n;
    recovered += two.at(0).retries + two.at(1).retries > 0;
    alone += (two.at(0).retries > 0) != (two.at(1).retries > 0);
  }
  EXPECT_GE(recovered, 5);
  EXPECT_EQ(alone, recovered);
}

// NaN on one rank only.
TEST(Ranks, ABadSampleOfOneRankSkipsTheStepOnAll) {
  in_ranks(2, [](const Ranks& ranks) {
    const Golden golden("qwen2");
    const Config config = config_of_ranks(Shard::optimizer);
    Trainer trainer(config, *golden.model, at::kCPU, 10, make_optimizer, ranks);
    EffectiveBatch batch = batch_of_step(golden, 0, ranks);
    Tensors before;
    golden.model->for_each_parameter([&](const std::string& name, Parameter& p) {
      before[name] = p.value.tensor().detach().clone();
      if (ranks.rank() == 1 && name == "model.norm.weight") p.value.tensor().detach().fill_(NAN);
    });
    const StepResult result = trainer.step(batch);
    EXPECT_TRUE(result.skipped);
    ASSERT_EQ(result.sample_losses.size(), batch.samples.size());
    for (int64_t rank = 0; rank < 2; rank++) {
      batch.share.rank = rank;
      for (const int64_t slot : batch.own_slots())
        EXPECT_EQ(std::isnan(result.sample_losses[static_cast<size_t>(slot)]), rank == 1) << slot;
    }
    golden.model->for_each_parameter([&](const std::string& name, Parameter& p) {
      if (name == "model.norm.weight") return;
      EXPECT_TRUE(p.value.tensor().equal(before.at(name))) << name;
    });
  });
}

}  // namespace
}  // namespace trainer
