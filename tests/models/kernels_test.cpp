// Whole models with the operators of a GPU, whose kernels run on the CPU (support/emulated_gpu.h): as close
// to Transformers as with the CPU's operators.
#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "trainer/generation/generate.h"

#include "models/golden.h"
#include "ops/emulated_kernels.h"

namespace trainer {
namespace {

ForwardContext training_context() {
  ForwardContext context;
  context.anchor = at::zeros({1}).set_requires_grad(true);
  return context;
}

class GoldenOnAnEmulatedGpu : public testing::TestWithParam<const char*> {
 protected:
  OperatorsOnAnEmulatedGpu operators_;
};

TEST_P(GoldenOnAnEmulatedGpu, LossAndEveryGradientAgreeInFp32) {
  const Golden golden(GetParam());
  double loss = 0;
  const auto gradients = golden.gradients(golden.one_cut(), training_context(), &loss);
  EXPECT_NEAR(loss, golden.expected("loss").item<double>(), 1e-5 * loss);
  for (const auto& [name, gradient] : gradients) {
    EXPECT_LE(relative_error(gradient, golden.expected("grad." + name)), 1e-5) << name;
  }
  EXPECT_FALSE(operators_.gpu.take_used().empty());
}

TEST_P(GoldenOnAnEmulatedGpu, RecomputingEveryBlockGivesTheSameBitsWithDropoutOn) {
  const Golden golden(GetParam());
  golden.model->set_dropout(0.1);
  ForwardContext context = training_context();
  context.training = true;
  context.random_key = 7;
  const auto kept = golden.gradients(golden.one_cut(), context);
  context.recompute_blocks = golden.model->num_blocks();
  for (const auto& [name, gradient] : golden.gradients(golden.one_cut(), context)) {
    EXPECT_TRUE(gradient.equal(kept.at(name))) << name;
  }
}

TEST_P(GoldenOnAnEmulatedGpu, MakingQuickOperatorsAgainGivesTheSameBitsWithDropoutOn) {
  const Golden golden(GetParam());
  golden.model->set_dropout(0.1);
  ForwardContext context = training_context();
  context.training = true;
  context.random_key = 7;
  const auto kept = golden.gradients(golden.one_cut(), context);
  context.light = true;
  for (const auto& [name, gradient] : golden.gradients(golden.one_cut(), context)) {
    EXPECT_TRUE(gradient.equal(kept.at(name))) << name;
  }
}

int64_t files_used(const std::vector<std::string>& used, const std::string& file) {
  return std::count_if(used.begin(), used.end(),
                       [&](const std::string& name) { return name.starts_with(file + " "); });
}

// Adapters on a Llama, forward and backward. The first norm has no sum before it; the last one sees only some
// of the rows.
TEST(LaunchesOnAnEmulatedGpu, AreOneForEachSumWithItsNormAndOneForQueriesAndKeys) {
  const Golden golden("llama_lora");
  OperatorsOnAnEmulatedGpu operators;
  golden.gradients(golden.one_cut(), training_context());
  const std::vector<std::string> used = operators.gpu.take_used();
  const int64_t layers = golden.model->num_blocks();
  EXPECT_EQ(files_used(used, "add_norm.cu"), 2 * (2 * layers - 1));
  EXPECT_LE(files_used(used, "rms_norm.cu"), 4);
  EXPECT_EQ(files_used(used, "rotate_qk.cu"), 2 * layers);
}

// For the forward pass and for backward, in place of three times; of what is not recomputed twice anyway.
TEST(WidenedOnceOnAnEmulatedGpu, GivesTheSameBitsWithFewerLaunches) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Golden golden("llama_nf4", type, Quantisation{});
    OperatorsOnAnEmulatedGpu operators;
    ForwardContext context = training_context();
    context.recompute_blocks = golden.model->num_blocks();
    const auto widened = [&](bool once) {
      context.widen_once = once;
      operators.gpu.take_used();
      const auto gradients = golden.gradients(golden.one_cut(), context);
      return std::pair(gradients, files_used(operators.gpu.take_used(), "nf4.cu"));
    };
    const auto [gradients, launches] = widened(false);
    const auto [again, fewer] = widened(true);
    const int64_t weights = 7 * golden.model->num_blocks();
    EXPECT_EQ(fewer, 2 * weights);
    EXPECT_GT(launches, fewer + weights / 2);
    for (const auto& [name, gradient] : again) EXPECT_TRUE(gradient.equal(gradients.at(name))) << name;
    context.recompute_blocks = 0;
    EXPECT_EQ(widened(true).second, widened(false).second);
  }
}

// Prompts of several lengths, two at a time, so that later ones take the places of earlier ones.
class GenerationOnAnEmulatedGpu : public testing::TestWithParam<const char*> {};

TEST_P(GenerationOnAnEmulatedGpu, GivesTheAnswersOfTheCpu) {
  const Golden golden(GetParam());
  std::vector<Tokens> prompts;
  for (const size_t length : {3, 17, 1, 9})
    prompts.push_back(Tokens(length, static_cast<int32_t>(length + 4)));
  GenerationConfig greedy, beams;
  beams.num_beams = 2;
  for (GenerationConfig config : {greedy, beams}) {
    config.max_new_tokens = 6;
    const auto answers = [&] {
      std::vector<std::vector<Tokens>> all;
      OomHandler batch_size(2);
      generate_in_batches(*golden.model, prompts, config, at::kCPU, batch_size, {},
                          [&](size_t, const std::vector<Tokens>& of_one) { all.push_back(of_one); });
      return all;
    };
    const auto expected = answers();
    OperatorsOnAnEmulatedGpu operators;
    EXPECT_EQ(answers(), expected);
    EXPECT_GT(files_used(operators.gpu.take_used(), "cached_attention.cu"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationOnAnEmulatedGpu,
                         testing::Values("t5_v1_1", "umt5", "qwen3", "llama", "gemma2", "gemma3",
                                         "phi3_window", "phi3", "t5gemma", "t5gemma2", "qwen3_5", "lfm2",
                                         "granite_hybrid", "gemma4_small_lora"),
                         [](const auto& param) { return std::string(param.param); });

INSTANTIATE_TEST_SUITE_P(Families, GoldenOnAnEmulatedGpu,
                         testing::Values("t5_v1_1", "umt5_lora", "qwen3", "llama_lora", "gemma2", "gemma3",
                                         "gemma4_lora", "phi3_lora", "granite"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace trainer
