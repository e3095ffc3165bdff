// Models compared with Transformers and PEFT: logits, loss, every gradient, generation.
#include "models/golden.h"

#include <ATen/core/grad_mode.h>

#include "trainer/generation/generate.h"

namespace trainer {
namespace {

constexpr double kFp32Tolerance = 1e-5;  // relative 2-norm

ForwardContext context_for(const Model&) {
  ForwardContext context;
  context.anchor = at::zeros({1}).set_requires_grad(true);
  return context;
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, LogitsLossAndEveryGradientAgreeInFp32) {
  const Golden golden(GetParam());
  const ForwardContext context = context_for(*golden.model);
  {
    at::NoGradGuard no_grad;
    const at::Tensor logits =
        golden.model->head().logits(golden.model->supervised_states(golden.whole(), context));
    EXPECT_LE(relative_error(logits, golden.expected("logits")), kFp32Tolerance);
  }
  double loss = 0;
  const auto gradients = golden.gradients(golden.one_cut(), context, &loss);
  EXPECT_NEAR(loss, golden.expected("loss").item<double>(), 1e-5 * loss);
  size_t expected = 0;
  for (const auto& [name, view] : golden.file.tensors) expected += name.starts_with("grad.") ? 1 : 0;
  EXPECT_EQ(gradients.size(), expected);
  for (const auto& [name, gradient] : gradients) {
    EXPECT_LE(relative_error(gradient, golden.expected("grad." + name)), kFp32Tolerance) << name;
  }
}

TEST_P(GoldenTest, LabelSmoothingAgrees) {
  const Golden golden(GetParam());
  double loss = 0;
  golden.gradients(golden.one_cut(), context_for(*golden.model), &loss, {.label_smoothing = 0.1});
  EXPECT_NEAR(loss, golden.expected("loss_smoothed").item<double>(), 1e-5 * loss);
}

TEST_P(GoldenTest, TheCutDoesNotChangeTheGradient) {
  const Golden golden(GetParam());
  const ForwardContext context = context_for(*golden.model);
  for (const auto& [name, gradient] : golden.gradients({{3, 0}, {1}, {4, 2}}, context)) {
    EXPECT_LE(relative_error(gradient, golden.expected("grad." + name)), kFp32Tolerance) << name;
  }
}

TEST_P(GoldenTest, RecomputingEveryBlockGivesTheSameBitsWithDropoutOn) {
  const Golden golden(GetParam());
  golden.model->set_dropout(0.1);
  ForwardContext context = context_for(*golden.model);
  context.training = true;
  for (const auto& cut : {golden.one_cut(), std::vector<std::vector<int64_t>>{{3, 0}, {1}, {4, 2}}}) {
    context.recompute_blocks = 0;
    const auto kept = golden.gradients(cut, context);
    context.recompute_blocks = golden.model->num_blocks();
    for (const auto& [name, gradient] : golden.gradients(cut, context)) {
      EXPECT_TRUE(gradient.equal(kept.at(name))) << name << " in " << cut.size() << " micro-batches";
    }
  }
}

TEST_P(GoldenTest, MakingQuickOperatorsAgainGivesTheSameBitsWithDropoutOn) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Golden golden(GetParam(), type);
    golden.model->set_dropout(0.1);
    ForwardContext context = context_for(*golden.model);
    context.training = true;
    const auto kept = golden.gradients(golden.one_cut(), context);
    context.light = true;
    for (const int64_t blocks : {0, 1}) {
      context.recompute_blocks = blocks;
      for (const auto& [name, gradient] : golden.gradients(golden.one_cut(), context))
        EXPECT_TRUE(gradient.equal(kept.at(name))) << name << " " << blocks;
    }
  }
}

TEST_P(GoldenTest, DropoutDoesNotDependOnTheCut) {
  const Golden golden(GetParam());
  golden.model->set_dropout(0.2);
  ForwardContext context = context_for(*golden.model);
  context.training = true;
  const auto whole = golden.gradients(golden.one_cut(), context);
  for (const auto& [name, gradient] : golden.gradients({{4}, {2, 0}, {3, 1}}, context)) {
    EXPECT_LE(relative_error(gradient, whole.at(name)), kFp32Tolerance) << name;
  }
}

TEST_P(GoldenTest, Bf16IsAsCloseToFp32AsTransformersIs) {
  const Golden golden(GetParam(), at::kBFloat16);
  const nlohmann::json theirs = golden.json("hf_bf16_error.json");
  const auto gradients = golden.gradients(golden.one_cut(), context_for(*golden.model));
  double squares = 0, total = 0;
  for (const auto& [name, gradient] : gradients) {
    const at::Tensor expected = golden.expected("grad." + name).to(at::kDouble);
    squares += (gradient.to(at::kDouble) - expected).square().sum().item<double>();
    total += expected.square().sum().item<double>();
  }
  const double ours = std::sqrt(squares / total);
  EXPECT_LE(ours, 1.5 * theirs.at("grads").at("overall").get<double>()) << theirs.dump(1).substr(0, 300);
  at::NoGradGuard no_grad;
  const ForwardContext context;
  const at::Tensor logits =
      golden.model->head().logits(golden.model->supervised_states(golden.whole(), context));
  EXPECT_LE(relative_error(logits, golden.expected("logits")), 1.5 * theirs.at("logits").get<double>());
}

TEST_P(GoldenTest, GreedyGenerationAgrees) {
  const Golden golden(GetParam());
  const nlohmann::json generation = golden.json("generation.json");
  const auto prompts = generation["prompts"].get<std::vector<std::vector<int32_t>>>();
  GenerationConfig config = read_generation_config(golden.directory / "model", golden.model->vocab_size());
  config.max_new_tokens = generation["max_new_tokens"].get<int64_t>();
  for (const bool packing : {true, false}) {
    config.packing = packing;
    std::vector<Tokens> answers;
    for (const auto& sequences : generate(*golden.model, prompts, config, at::kCPU))
      answers.push_back(sequences[0]);
    EXPECT_EQ(answers, generation["generated"].get<std::vector<Tokens>>()) << "packing " << packing;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, testing::ValuesIn(golden_names()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace trainer
