// Runs a step once for each tensor allocation in it, and makes that allocation fail. Afterwards the weights
// equal, bit for bit, those of a step that used the final, smaller split from the beginning, and no memory is
// left behind.
#include <set>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/random.h"
#include "trainer/memory/copy_stream.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/offload.h"
#include "trainer/training/trainer.h"

#include "data/fixture.h"
#include "models/golden.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

struct Case {
  std::string model;
  bool lora, recompute, packing = false;
  bool offload = false, copies = false;  // copies: as on a GPU
};

std::string name_of(const Case& c) {
  return c.model + (c.lora ? "_lora" : "_full") + (c.recompute ? "_recomputed" : "_kept") +
         (c.packing ? "_packed" : "") + (c.offload ? "_offloaded" : "") + (c.copies ? "_copied" : "");
}

Config config_of(const Case& c) {
  Config config;
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.lr_scheduler_type = SchedulerType::constant;
  config.training.batch_size = 5;
  config.training.max_grad_norm = 1.0;
  config.data.max_source_length = config.data.max_target_length = config.data.max_length = 32;
  config.memory.gradient_checkpointing = c.recompute;
  config.data.packing = c.packing;
  config.recovery.grow_after = 0;
  config.memory.offload = {.optimizer = c.offload, .weights = c.offload, .activations = c.offload};
  return config;
}

// A tiny model with dropout and its trainer; two of the same case are equal.
struct Bench {
  explicit Bench(const Case& c, const std::function<void(Config&)>& change = {}) : config(config_of(c)) {
    if (change) change(config);
    model = load_model(golden_directory(c.model) / "model",
                       {at::kCPU, at::kFloat, /*train_all=*/!c.lora, std::nullopt, c.offload});
    if (model->has_dropout()) model->set_dropout(0.1);
    if (c.lora) {
      LoraConfig lora;
      lora.r = 4;
      lora.lora_dropout = 0.1;
      lora.target_modules = "all-linear";
      apply_lora(*model, lora, 1, at::kCPU);
    }
    trainer.emplace(config, *model, at::kCPU, 1 << 30);
    trainer->on_recovery([this](const Recovery& recovery) { recoveries.push_back(recovery); });
  }

  void start_at_full_size() {
    trainer->budgets() = {};
    recoveries.clear();
  }
  std::set<std::string> stages() const {
    std::set<std::string> out;
    for (const Recovery& recovery : recoveries) out.insert(recovery.stage);
    return out;
  }

  Config config;
  std::unique_ptr<Model> model;
  std::optional<Trainer> trainer;
  std::vector<Recovery> recoveries;
};

void expect_same_weights(const Bench& a, const Bench& b, int64_t n) {
  const auto &first = a.trainer->parameters(), &second = b.trainer->parameters();
  for (size_t i = 0; i < first.size(); i++) {
    ASSERT_TRUE(first[i].value.equal(second[i].value)) << first[i].name << ", allocation " << n;
  }
}

class EveryAllocation : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    install_host_allocator();
    log::set_level(log::Level::error);
  }
  static void TearDownTestSuite() { log::set_level(log::Level::info); }
  EveryAllocation() {
    set_offload_directory(below_.path());
    if (GetParam().copies) copies_.emplace();
  }
  void TearDown() override { fail_host_allocation(0); }

  // Both make the same steps; of `wanting` the allocations fail. Returns whether one did.
  bool step_both(Bench& wanting, Bench& ample, const EffectiveBatch& batch, int64_t n, int64_t then = 0) {
    wanting.start_at_full_size();
    fail_host_allocation(n, then);
    const StepResult result = wanting.trainer->step(batch);
    fail_host_allocation(0);
    const StepCuts cuts{result.cuts, result.recomputed_blocks, result.packed_budget};
    const StepResult expected = ample.trainer->step(batch, &cuts);
    EXPECT_EQ(expected.retries, 0);
    EXPECT_EQ(expected.cuts, result.cuts);
    EXPECT_EQ(result.loss, expected.loss) << n;
    EXPECT_EQ(result.grad_norm, expected.grad_norm) << n;
    EXPECT_EQ(result.retries, static_cast<int64_t>(wanting.recoveries.size()));
    expect_same_weights(wanting, ample, n);
    return result.retries > 0;
  }

 private:
  test::TemporaryDirectory below_;
  std::optional<CopyAsOnGpu> copies_;
};

TEST_P(EveryAllocation, ThatFailsCostsTimeAndNothingElse) {
  const EffectiveBatch batch = Golden(GetParam().model).batch;
  Bench wanting(GetParam()), ample(GetParam());
  step_both(wanting, ample, batch, 0);
  const int64_t floor = host_memory().in_use;
  std::set<std::string> stages;
  int64_t n = 1, cut = 0;
  for (; step_both(wanting, ample, batch, n) && !HasFatalFailure(); n++) {
    stages.merge(wanting.stages());
    const Recovery& first = wanting.recoveries.front();
    cut += first.to_samples < first.from_samples || first.to_tokens < first.from_tokens ? 1 : 0;
    ASSERT_EQ(host_memory().in_use, floor)
        << "allocation " << n << " of " << wanting.recoveries.front().stage;
  }
  EXPECT_GT(n, 100) << "allocations of a step";
  EXPECT_GT(cut, n / 2) << "most are in the forward and backward passes";
  for (const char* stage : {"forward", "backward", "optimizer"}) EXPECT_TRUE(stages.contains(stage)) << stage;
}

TEST_P(EveryAllocation, ThatFailsAgainInTheRetryIsTheSame) {
  const EffectiveBatch batch = Golden(GetParam().model).batch;
  Bench wanting(GetParam()), ample(GetParam());
  step_both(wanting, ample, batch, 0);
  const int64_t floor = host_memory().in_use;
  int64_t twice = 0;
  for (int64_t n = 1, round = 0; !HasFatalFailure(); n += 11, round++) {
    const auto then = static_cast<int64_t>(derive(7, static_cast<uint64_t>(round)) % 250) + 1;
    if (!step_both(wanting, ample, batch, n, then)) break;
    twice += wanting.recoveries.size() > 1 ? 1 : 0;
    ASSERT_EQ(host_memory().in_use, floor) << "allocations " << n << " and " << then << " after it";
  }
  EXPECT_GT(twice, 5);
}

TEST_P(EveryAllocation, ThatFailsInARehearsalChangesNothing) {
  const EffectiveBatch batch = Golden(GetParam().model).batch;
  Bench wanting(GetParam()), ample(GetParam());
  step_both(wanting, ample, batch, 0);
  const int64_t floor = host_memory().in_use;
  for (int64_t n = 1; !HasFatalFailure(); n += 7) {
    wanting.start_at_full_size();
    fail_host_allocation(n);
    wanting.trainer->rehearse(batch);
    fail_host_allocation(0);
    if (wanting.recoveries.empty()) break;
    ASSERT_EQ(wanting.stages(), std::set<std::string>{"rehearsal"});
    ASSERT_EQ(host_memory().in_use, floor) << n;
    expect_same_weights(wanting, ample, n);
  }
  step_both(wanting, ample, batch, 0);  // nor in the state of the optimizer
}

INSTANTIATE_TEST_SUITE_P(
    Models, EveryAllocation,
    testing::Values(Case{"t5_v1_1", false, false}, Case{"t5_v1_1", false, true}, Case{"t5_v1_1", true, false},
                    Case{"t5_v1_1", true, true}, Case{"qwen2", false, false}, Case{"qwen2", false, true},
                    Case{"qwen2", true, false}, Case{"qwen2", true, true}, Case{"qwen2", false, true, true},
                    Case{"t5_v1_1", false, false, true}, Case{"t5_v1_1", true, false, true},
                    Case{"mistral", true, false, true}, Case{"gemma2", true, false, true},
                    Case{"t5_v1_1", false, true, false, true, true}, Case{"qwen2", true, true, false, true},
                    Case{"qwen2", false, true, false, true}),
    [](const auto& param) { return name_of(param.param); });

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
    kept = peak(false);
    recomputed = peak(true);
  }
  int64_t peak(bool recompute) const {
    Bench bench({kQwen.model, false, recompute});
    const int64_t floor = host_memory().in_use;
    reset_host_peak();
    bench.trainer->step(batch);
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

// A run whose every sample needs recompute runs out of memory once, not in every step.
TEST_F(Limits, RecomputeIsRememberedForSamplesAsLong) {
  const LongSample sample;
  Bench bench(kQwen, [](Config& config) { config.recovery.grow_after = 3; });
  set_host_limit(host_memory().in_use + (sample.kept + sample.recomputed) / 2);
  EXPECT_EQ(bench.trainer->step(sample.batch).retries, 1);
  const StepResult second = bench.trainer->step(sample.batch);
  EXPECT_EQ(second.retries, 0);
  EXPECT_EQ(second.recomputed_blocks, bench.model->num_blocks());
  EffectiveBatch shorter = sample.golden;
  shorter.samples.resize(1);
  shorter.supervised_tokens = supervised_tokens(shorter.samples[0], false);
  EXPECT_EQ(bench.trainer->step(shorter).recomputed_blocks, 0) << "a short sample fits without";
  EXPECT_EQ(bench.trainer->step(sample.batch).retries, 0);
  EXPECT_EQ(bench.trainer->step(sample.batch).retries, 1) << "tried again, as memory may have become free";
  set_host_limit(0);
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

class EvaluationSweep : public DataTest {
 protected:
  void TearDown() override { fail_host_allocation(0); }
};

TEST_F(EvaluationSweep, EveryAllocationThatFailsLeavesTheSameNumbersAndTheTrainingsBudget) {
  install_host_allocator();
  log::set_level(log::Level::error);
  config_.data.input = "input";
  config_.data.target = "target";
  const Dataset dataset = data(R"({"input": "10 11 12 13 14 15", "target": "20 21"}
{"input": "30 31", "target": "40 41 42 43"}
{"input": "50", "target": "60"}
{"input": "70 71 72 73 74 75 76 77", "target": "80 81 82"}
)");
  Bench bench(kT5);
  const EvaluationResult expected = bench.trainer->evaluate(dataset);
  const int64_t floor = host_memory().in_use;
  int64_t n = 1;
  for (;; n++) {
    bench.start_at_full_size();
    fail_host_allocation(n);
    const EvaluationResult result = bench.trainer->evaluate(dataset);
    fail_host_allocation(0);
    EXPECT_NEAR(result.loss, expected.loss, 1e-6 * expected.loss) << n;
    EXPECT_EQ(result.token_accuracy, expected.token_accuracy) << n;
    EXPECT_EQ(result.samples, 4);
    ASSERT_EQ(host_memory().in_use, floor) << n;
    if (bench.recoveries.empty()) break;
    EXPECT_EQ(bench.stages(), std::set<std::string>{"evaluation"});
    EXPECT_EQ(bench.trainer->budgets().training.halvings, 0);
    EXPECT_GT(bench.trainer->budgets().evaluation.halvings, 0);
  }
  EXPECT_GT(n, 50);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace trainer
