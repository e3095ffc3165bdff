// Passes that are recorded and started again give the bits of those that are launched.
#include "trainer/memory/host_allocator.h"

#include "ops/emulated_kernels.h"
#include "support/repeated_on_the_cpu.h"
#include "training/oom_bench.h"

namespace trainer::oom {
namespace {

struct Steps {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> weights;
  size_t recoveries = 0;
};

// Steps of two forms in turn, of three micro-batches each, whose tokens differ. `fail_at`: the allocation of
// the tenth step that fails.
Steps twelve_steps(const Case& c, int64_t fail_at = 0) {
  Bench bench(c, [&](Config& config) {
    config.training.micro_batching = MicroBatching::samples;
    config.training.batch_size = 2;
    config.optimizer.grad_dtype = StateDtype::fp32;
  });
  const Golden golden(c.model);
  Steps steps;
  for (int64_t step = 0; step < 12; step++) {
    EffectiveBatch batch = golden.batch;
    if (step % 2 == 1) batch.samples.pop_back();
    for (Sample& sample : batch.samples)
      for (int32_t& token : sample.input_ids) token = 5 + (token + static_cast<int32_t>(step)) % 20;
    batch.supervised_tokens = 0;
    for (const Sample& sample : batch.samples)
      batch.supervised_tokens += supervised_tokens(sample, bench.model->encoder_decoder());
    if (step == 9) fail_host_allocation(fail_at);
    const StepResult result = bench.trainer->step(batch);
    fail_host_allocation(0);
    steps.losses.push_back(result.loss);
    steps.norms.push_back(result.grad_norm);
  }
  for (const TrainedParameter& parameter : bench.trainer->parameters())
    steps.weights.push_back(parameter.value.detach().clone());
  steps.recoveries = bench.recoveries.size();
  return steps;
}

void expect_same_bits(const Steps& repeated, const Steps& launched) {
  EXPECT_EQ(repeated.losses, launched.losses);
  EXPECT_EQ(repeated.norms, launched.norms);
  EXPECT_EQ(repeated.recoveries, 0);
  for (size_t i = 0; i < launched.weights.size(); i++)
    EXPECT_TRUE(repeated.weights[i].equal(launched.weights[i])) << i;
}

class RepeatedPassesOnAnEmulatedGpu : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
  OperatorsOnAnEmulatedGpu operators_;
};

TEST_P(RepeatedPassesOnAnEmulatedGpu, GiveTheBitsOfLaunchedOnes) {
  const Steps launched = twelve_steps(GetParam());
  const RepeatingOnTheCpu repeating;
  expect_same_bits(twelve_steps(GetParam()), launched);
  EXPECT_GT(RepeatedOnTheCpu::starts, 12);
}

// The graphs' memory is what is missing then, so the micro-batches stay as they are.
TEST_P(RepeatedPassesOnAnEmulatedGpu, AreLaunchedAgainWhereMemoryDoesNotSuffice) {
  const Steps launched = twelve_steps(GetParam());
  const RepeatingOnTheCpu repeating;
  expect_same_bits(twelve_steps(GetParam(), /*fail_at=*/40), launched);
  const int64_t starts = std::exchange(RepeatedOnTheCpu::starts, 0);
  EXPECT_GT(starts, 0);
  twelve_steps(GetParam());
  EXPECT_GT(RepeatedOnTheCpu::starts, starts) << "it went on after running out of memory";
}

INSTANTIATE_TEST_SUITE_P(Cases, RepeatedPassesOnAnEmulatedGpu,
                         testing::Values(Case{"llama", true, false},
                                         Case{"qwen3", false, true, true, false, false, at::kBFloat16},
                                         Case{"gemma3", true, false, true},
                                         Case{"t5_v1_1", true, false, true},
                                         Case{"t5_v1_1", false, true, false, false, false, at::kBFloat16}),
                         [](const auto& param) { return name_of(param.param); });

}  // namespace
}  // namespace trainer::oom
