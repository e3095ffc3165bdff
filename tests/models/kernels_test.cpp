// Whole models with the operators of a GPU, whose kernels run on the CPU (support/emulated_gpu.h): as close
// to Transformers as with the CPU's operators.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "trainer/generation/generate.h"

#include "models/golden.h"
#include "ops/emulated_kernels.h"
#include "support/repeated_on_the_cpu.h"

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
std::vector<std::vector<Tokens>> answers_of(const Model& model, const GenerationConfig& config) {
  std::vector<Tokens> prompts;
  for (const size_t length : {3, 17, 1}) prompts.push_back(Tokens(length, static_cast<int32_t>(length + 4)));
  std::vector<std::vector<Tokens>> answers;
  OomHandler batch_size(2);
  generate_in_batches(model, prompts, config, at::kCPU, batch_size, {},
                      [&](size_t, const std::vector<Tokens>& of_one) { answers.push_back(of_one); });
  return answers;
}

class GenerationOnAnEmulatedGpu : public testing::TestWithParam<const char*> {};

// What steps take from the host would be that of the recording in a CUDA graph.
TEST_P(GenerationOnAnEmulatedGpu, GivesTheAnswersOfTheCpuInStepsThatDependOnTheDeviceOnly) {
  const std::string name = GetParam();
  const bool follows_lengths = name == "phi3" || name == "qwen3_5" || name == "lfm2";
  const Golden golden(name);
  GenerationConfig greedy, beams;
  beams.num_beams = 2;
  for (GenerationConfig config : {greedy, beams}) {
    config.max_new_tokens = 9;
    config.repetition_penalty = 1.3;
    const auto expected = answers_of(*golden.model, config);
    OperatorsOnAnEmulatedGpu operators;
    const RepeatingOnTheCpu repeating;
    EXPECT_EQ(answers_of(*golden.model, config), expected);
    EXPECT_GT(files_used(operators.gpu.take_used(), "cached_attention.cu"), 0);
    EXPECT_EQ(RepeatedOnTheCpu::starts > 0, !follows_lengths);
    const RepeatingOnTheCpu wrong(/*wrong=*/true);
    EXPECT_EQ(answers_of(*golden.model, config), expected);
    EXPECT_EQ(RepeatedOnTheCpu::starts, follows_lengths ? 0 : 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationOnAnEmulatedGpu,
                         testing::Values("t5_v1_1", "umt5", "qwen3", "llama", "gemma2", "gemma3",
                                         "phi3_window", "phi3", "t5gemma", "t5gemma2", "qwen3_5", "lfm2",
                                         "granite_hybrid", "gemma4_small_lora"),
                         [](const auto& param) { return std::string(param.param); });

struct CodedModel {
  const char* name;
  const char* form;  // how it is stored
  int64_t launches;  // for the weights of a decoder's layer: one for those of one input
};

class CodedModelOnAnEmulatedGpu : public testing::TestWithParam<CodedModel> {};

// With adapters; T5 keeps one of its weights dense. A step of the answer has no other launches for its
// weights. The CPU widens them.
TEST_P(CodedModelOnAnEmulatedGpu, GeneratesFromTheWeightsAsTheyAreStored) {
  const at::NoGradGuard no_grad;
  const CodedModel& model = GetParam();
  const auto quantise = model.form == std::string("model") ? std::optional(Quantisation{}) : std::nullopt;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Golden golden(model.name, type, quantise, model.form);
    const at::Tensor tokens = at::tensor(std::vector<int64_t>{5, 9, 7});
    const auto begin = [&](Generation& generation) {
      const at::Tensor logits = generation.add(golden.whole());
      return logits.defined() ? logits : generation.next(at::zeros_like(tokens));
    };
    const auto generation = golden.model->generate(at::kCPU);
    const at::Tensor first = begin(*generation), second = generation->next(tokens);

    OperatorsOnAnEmulatedGpu operators;
    const auto on_gpu = golden.model->generate(at::kCPU);
    const double bound = type == at::kFloat ? 1e-5 : 2e-2;
    EXPECT_LE(relative_error(begin(*on_gpu), first), bound);
    operators.gpu.take_used();
    EXPECT_LE(relative_error(on_gpu->next(tokens), second), bound);
    const std::vector<std::string> used = operators.gpu.take_used();
    const int64_t layers = golden.model->num_blocks() / (golden.model->encoder_decoder() ? 2 : 1);
    EXPECT_EQ(files_used(used, "coded_product.cu"), layers * model.launches);
    EXPECT_EQ(files_used(used, "nf4.cu") + files_used(used, "fp8.cu"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, CodedModelOnAnEmulatedGpu,
    testing::Values(CodedModel{"llama_nf4", "model", 4}, CodedModel{"qwen2_nf4", "model", 4},
                    CodedModel{"phi3_nf4", "stored", 4}, CodedModel{"t5_v1_1_nf4", "stored", 5},
                    CodedModel{"llama_fp8", "block", 4}, CodedModel{"llama_fp8", "tensor", 4}),
    [](const auto& param) { return param.param.name + std::string("_") + param.param.form; });

INSTANTIATE_TEST_SUITE_P(Families, GoldenOnAnEmulatedGpu,
                         testing::Values("t5_v1_1", "umt5_lora", "qwen3", "llama_lora", "gemma2", "gemma3",
                                         "gemma4_lora", "phi3_lora", "granite"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace trainer
