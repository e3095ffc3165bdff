// Steps whose loss or gradient is not finite are not applied.
#include <cmath>

#include "trainer/training/trainer.h"

#include "models/golden.h"

namespace trainer {
namespace {

constexpr int32_t kPoisoned = 4;  // a token of no sample of the golden
constexpr size_t kBad = 2;        // the sample that has it in bad_batch()

// A tiny model in which one token's embedding is infinite.
struct SkipBench {
  explicit SkipBench(at::ScalarType dtype, const std::function<void(Config&)>& change = {})
      : golden("llama", dtype) {
    weight("model.embed_tokens.weight")[kPoisoned].fill_(INFINITY);
    config.optimizer.learning_rate = 1e-3;
    config.optimizer.weight_decay = 0.1;
    config.training.batch_size = 2;
    if (change) change(config);
    trainer.emplace(config, *golden.model, at::kCPU, 10);
  }

  at::Tensor weight(const std::string& wanted) const {
    at::Tensor found;
    golden.model->for_each_parameter([&](const std::string& name, Parameter& p) {
      if (name == wanted) found = p.value.tensor().detach();
    });
    return found;
  }
  EffectiveBatch bad_batch() const {
    EffectiveBatch batch = golden.batch;
    batch.samples[kBad].input_ids[1] = kPoisoned;
    return batch;
  }
  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> out;
    golden.model->for_each_parameter(
        [&](const std::string& name, Parameter& p) { out[name] = p.value.tensor().detach().clone(); });
    return out;
  }

  Golden golden;
  Config config;
  std::optional<Trainer> trainer;
};

void expect_equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
}

struct SkipCase {
  const char* name;
  at::ScalarType dtype;
  bool masters;
};

class SkippedStep : public testing::TestWithParam<SkipCase> {};

// Moments, masters and the optimizer's own count decide what the steps after it make.
TEST_P(SkippedStep, LeavesWeightsAndOptimizerAsTheyWere) {
  const auto change = [](Config& config) {
    config.optimizer.lr_scheduler_type = SchedulerType::constant;
    config.optimizer.master_weights = GetParam().masters;
  };
  SkipBench skips(GetParam().dtype, change), undisturbed(GetParam().dtype, change);
  EXPECT_FALSE(skips.trainer->step(skips.golden.batch).skipped);
  const auto before = skips.weights();
  const StepResult result = skips.trainer->step(skips.bad_batch());
  EXPECT_TRUE(result.skipped);
  EXPECT_FALSE(std::isfinite(result.loss));
  expect_equal(skips.weights(), before);

  undisturbed.trainer->step(undisturbed.golden.batch);
  for (int i = 0; i < 2; i++) {
    EXPECT_FALSE(skips.trainer->step(skips.golden.batch).skipped);
    undisturbed.trainer->step(undisturbed.golden.batch);
  }
  expect_equal(skips.weights(), undisturbed.weights());
  EXPECT_FALSE(skips.weights().at("lm_head.weight").equal(before.at("lm_head.weight")));
}

INSTANTIATE_TEST_SUITE_P(Types, SkippedStep,
                         testing::Values(SkipCase{"fp32", at::kFloat, false},
                                         SkipCase{"bf16", at::kBFloat16, false},
                                         SkipCase{"masters", at::kBFloat16, true}),
                         [](const auto& param) { return param.param.name; });

TEST(SkippedSteps, TellWhichSamplesHaveALossThatIsNotFinite) {
  SkipBench bench(at::kFloat);
  const StepResult result = bench.trainer->step(bench.bad_batch());
  ASSERT_EQ(result.sample_losses.size(), bench.golden.batch.samples.size());
  for (size_t i = 0; i < result.sample_losses.size(); i++)
    EXPECT_EQ(std::isfinite(result.sample_losses[i]), i != kBad) << i;
  const StepResult good = bench.trainer->step(bench.golden.batch);
  EXPECT_TRUE(good.sample_losses.empty());
}

TEST(SkippedSteps, CountForTheSchedule) {
  SkipBench bench(at::kFloat), undisturbed(at::kFloat);
  bench.trainer->step(bench.golden.batch);
  const double skipped = bench.trainer->step(bench.bad_batch()).learning_rate;
  EXPECT_EQ(bench.trainer->steps_taken(), 2);
  const double after = bench.trainer->step(bench.golden.batch).learning_rate;
  undisturbed.trainer->step(undisturbed.golden.batch);
  EXPECT_EQ(skipped, undisturbed.trainer->step(undisturbed.golden.batch).learning_rate);
  EXPECT_EQ(after, undisturbed.trainer->step(undisturbed.golden.batch).learning_rate);
  EXPECT_LT(after, skipped);
}

TEST(SkippedSteps, AreThoseTooWhoseGradientAloneIsNotFinite) {
  SkipBench bench(at::kFloat);
  // The logits stay, the gradient of the norm's weight is 1e25 times as large: its square is no fp32 number.
  bench.weight("model.norm.weight").mul_(1e-25);
  bench.weight("lm_head.weight").mul_(1e25);
  const auto before = bench.weights();
  const StepResult result = bench.trainer->step(bench.golden.batch);
  EXPECT_TRUE(result.skipped);
  EXPECT_TRUE(std::isfinite(result.loss));
  EXPECT_FALSE(std::isfinite(result.grad_norm));
  for (const double loss : result.sample_losses) EXPECT_TRUE(std::isfinite(loss));
  expect_equal(bench.weights(), before);
}

}  // namespace
}  // namespace trainer
