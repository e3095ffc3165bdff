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

// Of two forms in turn; the tokens differ.
EffectiveBatch of_two_forms(const Golden& golden, int64_t step) {
  EffectiveBatch batch = golden.batch;
  if (step % 2 == 1) batch.samples.pop_back();
  for (Sample& sample : batch.samples)
    for (int32_t& token : sample.input_ids) token = 5 + (token + static_cast<int32_t>(step)) % 20;
  return batch;
}

// Seven samples whose lengths go round, and grow by one in every second step.
EffectiveBatch of_other_lengths(const Golden& golden, int64_t step) {
  EffectiveBatch batch;
  for (int32_t i = 0; i < 7; i++) {
    const size_t length = 8 + static_cast<size_t>((step * 5 + i * 3) % 7 + (i == 0 ? step % 2 : 0));
    Sample sample;
    for (size_t at = 0; at < length; at++)
      sample.input_ids.push_back(5 + (static_cast<int32_t>(at + length) * (i + 3)) % 20);
    sample.labels = sample.input_ids;
    if (golden.model->encoder_decoder()) sample.labels.resize(5 + static_cast<size_t>(i % 3));
    batch.samples.push_back(sample);
  }
  return batch;
}

struct Batches {
  EffectiveBatch (*at)(const Golden& golden, int64_t step);
  int64_t samples;  // of a micro-batch
};

// `fail_at`: the allocation of the tenth step that fails.
Steps twelve_steps(const Case& c, const Batches& batches, int64_t fail_at = 0,
                   const std::function<void(Config&)>& change = {}) {
  Bench bench(c, [&](Config& config) {
    config.training.micro_batching = MicroBatching::samples;
    config.training.batch_size = batches.samples;
    config.optimizer.grad_dtype = StateDtype::fp32;
    if (change) change(config);
  });
  const Golden golden(c.model);
  Steps steps;
  for (int64_t step = 0; step < 12; step++) {
    EffectiveBatch batch = batches.at(golden, step);
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

constexpr Batches kTwoForms{of_two_forms, 2}, kOtherLengths{of_other_lengths, 7};

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
  const Steps launched = twelve_steps(GetParam(), kTwoForms);
  const RepeatingOnTheCpu repeating;
  expect_same_bits(twelve_steps(GetParam(), kTwoForms), launched);
  EXPECT_GT(RepeatedOnTheCpu::starts, 12);
}

TEST_P(RepeatedPassesOnAnEmulatedGpu, AreLaunchedAgainWhereTheFirstGraphGivesOtherGradients) {
  const Steps launched = twelve_steps(GetParam(), kTwoForms);
  const RepeatingOnTheCpu repeating(/*wrong=*/true);
  expect_same_bits(twelve_steps(GetParam(), kTwoForms), launched);
  EXPECT_EQ(RepeatedOnTheCpu::starts, 1);
}

TEST_P(RepeatedPassesOnAnEmulatedGpu, AreLaunchedAgainWhereARecordingRunsOutOfMemory) {
  const Steps launched = twelve_steps(GetParam(), kTwoForms);
  const RepeatingOnTheCpu repeating;
  RepeatedOnTheCpu::lacks_memory = true;
  expect_same_bits(twelve_steps(GetParam(), kTwoForms), launched);
  EXPECT_EQ(RepeatedOnTheCpu::starts, 0);
}

// Where gradients are added in any order, a graph's bits cannot be those of the run.
TEST_P(RepeatedPassesOnAnEmulatedGpu, InFreeOrderTheFirstGraphIsComparedByNumbers) {
  const auto free_order = [](Config& config) { config.training.deterministic = false; };
  for (const double off : {1e-4, 0.5}) {
    const RepeatingOnTheCpu repeating;
    RepeatedOnTheCpu::off = off;
    twelve_steps(GetParam(), kTwoForms, 0, free_order);
    EXPECT_EQ(RepeatedOnTheCpu::starts == 1, off > 0.1) << off;
  }
}

// The graphs' memory is what is missing then, so the micro-batches stay as they are.
TEST_P(RepeatedPassesOnAnEmulatedGpu, AreLaunchedAgainWhereMemoryDoesNotSuffice) {
  const Steps launched = twelve_steps(GetParam(), kTwoForms);
  const RepeatingOnTheCpu repeating;
  expect_same_bits(twelve_steps(GetParam(), kTwoForms, /*fail_at=*/40), launched);
  const int64_t starts = std::exchange(RepeatedOnTheCpu::starts, 0);
  EXPECT_GT(starts, 0);
  twelve_steps(GetParam(), kTwoForms);
  EXPECT_GT(RepeatedOnTheCpu::starts, starts) << "it went on after running out of memory";
}

INSTANTIATE_TEST_SUITE_P(Cases, RepeatedPassesOnAnEmulatedGpu,
                         testing::Values(Case{"llama", true, false},
                                         Case{"qwen3", false, true, true, false, false, at::kBFloat16},
                                         Case{"gemma3", true, false, true},
                                         Case{"t5_v1_1", true, false, true},
                                         Case{"t5_v1_1", false, true, false, false, false, at::kBFloat16}),
                         [](const auto& param) { return name_of(param.param); });

// Their rows are padded so that passes repeat, whether those are recorded or not.
class PackedPassesOnAnEmulatedGpu : public RepeatedPassesOnAnEmulatedGpu {
 protected:
  // What a GPU whose driver has no graphs does.
  static RecordedWork refuse(const GpuWork& work) { return {work(), {}, nullptr, "refused"}; }
};

TEST_P(PackedPassesOnAnEmulatedGpu, RepeatWhateverTheLengthsOfSamplesAre) {
  set_recorder_for_cpu(refuse);
  const Steps launched = twelve_steps(GetParam(), kOtherLengths);
  const RepeatingOnTheCpu repeating;
  expect_same_bits(twelve_steps(GetParam(), kOtherLengths), launched);
  EXPECT_GT(RepeatedOnTheCpu::starts, 7);
}

INSTANTIATE_TEST_SUITE_P(Cases, PackedPassesOnAnEmulatedGpu,
                         testing::Values(Case{"qwen2", true, false, true, false, false, at::kBFloat16},
                                         Case{"llama", false, true, true, false, false, at::kBFloat16},
                                         Case{"t5_v1_1_nf4", true, false, true, false, false, at::kBFloat16}),
                         [](const auto& param) { return name_of(param.param); });

}  // namespace
}  // namespace trainer::oom
