// Steps whose tokens have weights, with z_loss; with focal loss, noise on the embeddings and a teacher: the
// update is the same in every split.
#include "training/steps_of_ranks.h"

namespace trainer {
namespace {

class WeightedSteps : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }

  WeightedSteps() : config_(config_of_ranks(Shard::none)), run_(GetParam()) {
    config_.training.z_loss = 1e-3;
    run_.weight_of_label = [](size_t place) { return 0.25f + 0.75f * static_cast<float>(place % 4); };
  }
  After steps(const Config& config, int64_t fail_at = 0) const {
    return six_steps(run_, config, Ranks::none(), fail_at);
  }

  Config config_;
  GoldenRun run_;
};

TEST_P(WeightedSteps, OfSeveralRanksAreThoseOfOne) {
  for (const Shard shard : {Shard::none, Shard::all}) {
    config_.parallel.shard = shard;
    expect_updates_of_one(steps(config_), on_ranks(3, run_, config_));
  }
}

TEST_P(WeightedSteps, DoNotDependOnTheSplit) {
  config_.training.batch_size = 8;
  const After whole = steps(config_);
  for (const bool packing : {false, true}) {
    Config config = config_;
    config.data.packing = packing;
    config.training.micro_batching = MicroBatching::samples;
    config.training.batch_size = 1;
    expect_updates_of_one(whole, {steps(config)});
  }
}

TEST_P(WeightedSteps, AreTheSameAfterALackOfMemory) {
  config_.training.batch_size = 8;
  const After whole = steps(config_), repeated = steps(config_, /*fail_at=*/60);
  EXPECT_EQ(repeated.retries, 1);
  expect_updates_of_one(whole, {repeated});
}

// What is the same for all tokens is divided out again; what differs is not.
TEST_P(WeightedSteps, DependOnRatiosOfWeights) {
  const After weighted = steps(config_);
  run_.weight_of_label = nullptr;
  const After plain = steps(config_);
  EXPECT_GT(distance(plain.weights, weighted.weights), 1e-5);
  run_.weight_of_label = [](size_t) { return 1.0f; };
  expect_same_bits(plain, steps(config_));
  run_.weight_of_label = [](size_t) { return 0.25f; };  // a power of 2: nothing is rounded
  expect_same_bits(plain, steps(config_));
}

class TaughtSteps : public WeightedSteps {
 protected:
  TaughtSteps() {
    config_.training.focal_gamma = 1.5;
    config_.training.neftune_noise_alpha =
        1;  // 5 saturates the tiny T5's attention: its gradients lose digits
    config_.objective.name = "distill";
    config_.objective.temperature = 2;
    config_.objective.divergence = "reverse";
    run_.taught = true;
  }
};

TEST_P(TaughtSteps, DoNotDependOnTheSplit) {
  config_.training.batch_size = 8;
  const After whole = steps(config_);
  for (const bool packing : {false, true}) {
    Config config = config_;
    config.data.packing = packing;
    config.training.micro_batching = MicroBatching::samples;
    config.training.batch_size = 1;
    expect_updates_of_one(whole, {steps(config)});
  }
}

TEST_P(TaughtSteps, OfSeveralRanksAreThoseOfOne) {
  expect_updates_of_one(steps(config_), on_ranks(3, run_, config_));
}

TEST_P(TaughtSteps, DependOnEachOfTheseAndNotOnChance) {
  const After all = steps(config_);
  expect_same_bits(all, steps(config_));
  for (const auto& change : std::vector<std::function<void(Config&)>>{
           [](Config& config) { config.training.focal_gamma = 0; },
           [](Config& config) { config.training.neftune_noise_alpha = 0; },
           [](Config& config) { config.objective.temperature = 1; },
           [](Config& config) { config.objective.divergence = "forward"; },
           [](Config& config) { config.objective.teacher_weight = 0.25; }}) {
    Config other = config_;
    change(other);
    EXPECT_GT(distance(all.weights, steps(other).weights), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TaughtSteps, testing::Values("t5_v1_1", "qwen2", "t5gemma"));
INSTANTIATE_TEST_SUITE_P(Models, WeightedSteps, testing::Values("t5_v1_1", "qwen2"));

}  // namespace
}  // namespace trainer
