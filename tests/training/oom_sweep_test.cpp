// Runs a step once for each tensor allocation in it, and makes that allocation fail. Afterwards the weights
// equal, bit for bit, those of a step that used the final, smaller split from the beginning, and no memory is
// left behind.
#include <set>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/training/trainer.h"

#include "base/random.h"
#include "data/fixture.h"
#include "memory/copy_stream.h"
#include "memory/offload.h"
#include "models/golden.h"
#include "support/one_thread.h"
#include "support/temporary_directory.h"
#include "training/oom_bench.h"

namespace trainer {
namespace {

using oom::Bench;
using oom::Case;
using oom::expect_same_weights;
using oom::name_of;

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
  const test::OneThread one_thread_;
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
    ASSERT_EQ(wanting.stages(), std::set<std::string>{"memory test"});
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

class EvaluationSweep : public DataTest {
 protected:
  void TearDown() override { fail_host_allocation(0); }
};

TEST_F(EvaluationSweep, EveryAllocationThatFailsLeavesTheSameNumbersAndTheTrainingsBudget) {
  const test::OneThread one_thread;
  install_host_allocator();
  log::set_level(log::Level::error);
  config_.data.input = "input";
  config_.data.target = "target";
  const Dataset dataset = data(R"({"input": "10 11 12 13 14 15", "target": "20 21"}
{"input": "30 31", "target": "40 41 42 43"}
{"input": "50", "target": "60"}
{"input": "70 71 72 73 74 75 76 77", "target": "80 81 82"}
)");
  Bench bench({"t5_v1_1", false, false});
  const EvaluationResult expected = bench.trainer->evaluate(dataset);
  const int64_t floor = host_memory().in_use;
  int64_t n = 1;
  for (;; n++) {
    bench.start_at_full_size();
    fail_host_allocation(n);
    const EvaluationResult result = bench.trainer->evaluate(dataset);
    fail_host_allocation(0);
    EXPECT_NEAR(result.loss, expected.loss, 1e-6 * expected.loss) << n;
    EXPECT_EQ(result.terms, expected.terms) << n;
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
