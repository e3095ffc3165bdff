// Steps of preferences and of feedback: the update is the same in every split, on several ranks, and where
// the two answers of a row cannot go through the model together.
#include <numeric>

#include "training/steps_of_ranks.h"

namespace trainer {
namespace {

struct AnswersCase {
  const char* golden;
  const char* objective;
};

// The golden's samples as the answers of rows: the first half chosen, the other half rejected.
EffectiveBatch answers_of(const Golden& golden, const Ranks& ranks, bool judged, bool kept) {
  EffectiveBatch batch = golden.batch;
  batch.share = {ranks.rank(), ranks.count()};
  if (batch.samples.size() % 2 == 1) batch.samples.pop_back();
  if (!judged) batch.sides = 2;
  double reference = -3;
  for (size_t slot = 0; slot < batch.samples.size(); slot++) {
    batch.samples[slot].desirable = slot % 2 == 0;
    if (kept) batch.samples[slot].reference = reference -= 0.5;
    if (kept && judged) batch.reference_of_others.push_back(reference - 20);  // so that kl is above 0
  }
  return batch;
}

After steps_of_answers(const AnswersCase& of, const Config& config, const Ranks& ranks, bool kept,
                       int64_t fail_at = 0) {
  const Golden golden = golden_of(of.golden, config, ranks);
  if (golden.model->has_dropout()) golden.model->set_dropout(0.1);
  Trainer trainer(config, *golden.model, at::kCPU, 10, make_optimizer, ranks);
  After after;
  for (int64_t step = 0; step < 4; step++) {
    if (step == 2 && fail_at > 0) fail_host_allocation(fail_at);
    const StepResult result = trainer.step(answers_of(golden, ranks, config.objective.judges(), kept));
    if (step == 2 && fail_at > 0) fail_host_allocation(0);
    EXPECT_FALSE(result.skipped);
    after.losses.push_back(result.loss);
    after.norms.push_back(result.grad_norm);
    after.retries += result.retries;
  }
  golden.model->for_each_parameter([&](const std::string& name, Parameter& p) {
    if (p.trained() && !p.value.is_of_other_rank()) after.weights[name] = p.value.tensor().detach().clone();
  });
  return after;
}

// A token's log-probability of about 10 is off by 10 * 2^-24 = 6e-7 in fp32, and the golden's answers have up
// to 12 tokens, whose errors add up to 7e-6 at most. The losses change by at most 0.1 (dpo, kto: beta), 2
// (simpo, per token) or 1 (orpo, per token) times that, and are 0.5 at least: so by 5e-6 of themselves. In
// the gradient the two answers of a row nearly cancel out where they share tokens, which leaves a fourth of
// its digits.
void expect_same_updates(const After& one, const std::vector<After>& many) {
  for (const After& rank : many) {
    EXPECT_LE(distance(one.weights, rank.weights), 2e-6);
    for (size_t step = 0; step < one.losses.size(); step++) {
      EXPECT_NEAR(rank.losses[step], one.losses[step], 5e-6 * one.losses[step]) << step;
      EXPECT_NEAR(rank.norms[step], one.norms[step], 2e-5 * one.norms[step]) << step;
    }
  }
}

class AnswersSteps : public testing::TestWithParam<AnswersCase> {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
  AnswersSteps() : config_(config_of_ranks(Shard::none)) {
    config_.objective.name = GetParam().objective;
    config_.training.batch_size = 8;
    kept_ = std::string(GetParam().golden).find("lora") == std::string::npos;
  }
  After steps(const Config& config, int64_t fail_at = 0) const {
    return steps_of_answers(GetParam(), config, Ranks::none(), kept_, fail_at);
  }

  Config config_;
  bool kept_;
};

TEST_P(AnswersSteps, DoNotDependOnTheSplit) {
  const After whole = steps(config_);
  for (const int64_t batch_size : {1, 2}) {  // 1: the answers of a row are apart
    for (const bool packing : {false, true}) {
      Config config = config_;
      config.data.packing = packing;
      config.training.micro_batching = MicroBatching::samples;
      config.training.batch_size = batch_size;
      expect_same_updates(whole, {steps(config)});
    }
  }
}

TEST_P(AnswersSteps, OfSeveralRanksAreThoseOfOne) {
  const After whole = steps(config_);
  for (const int64_t batch_size : {1, 8}) {
    config_.training.batch_size = batch_size;
    std::vector<After> all(2);
    in_ranks(2, [&](const Ranks& ranks) {
      all[static_cast<size_t>(ranks.rank())] = steps_of_answers(GetParam(), config_, ranks, kept_);
    });
    expect_same_updates(whole, all);
  }
}

TEST_P(AnswersSteps, AreTheSameAfterALackOfMemory) {
  const After whole = steps(config_), repeated = steps(config_, /*fail_at=*/60);
  EXPECT_EQ(repeated.retries, 1);
  expect_same_updates(whole, {repeated});
}

INSTANTIATE_TEST_SUITE_P(Models, AnswersSteps,
                         testing::Values(AnswersCase{"qwen2_lora", "dpo"}, AnswersCase{"qwen2_lora", "kto"},
                                         AnswersCase{"qwen2", "orpo"}, AnswersCase{"qwen2", "ipo"},
                                         AnswersCase{"qwen2", "kto"}, AnswersCase{"llama_lora_head", "dpo"},
                                         AnswersCase{"t5_v1_1_lora", "dpo"},
                                         AnswersCase{"t5_v1_1", "simpo"}));

}  // namespace
}  // namespace trainer
