// Samples that share a row, compared with the same samples in separate rows, and with Transformers.
#include <cmath>

#include <ATen/core/grad_mode.h>

#include "models/golden.h"

namespace trainer {
namespace {

constexpr double kPackedTolerance = 1e-5;  // relative 2-norm, as for padded rows

ForwardContext training_context() {
  ForwardContext context;
  context.anchor = at::zeros({1}).set_requires_grad(true);
  context.training = true;
  return context;
}

class Packing : public testing::TestWithParam<std::string> {};

TEST_P(Packing, LossAndEveryGradientAreThoseOfTransformersOnSeparateRows) {
  Golden golden(GetParam());
  golden.packing = true;
  golden.model->set_dropout(0);
  const ForwardContext context = training_context();
  using Cuts = std::vector<std::vector<int64_t>>;
  for (const Cuts& cuts : {golden.one_cut(), Cuts{{3, 0, 2}, {4, 1}}, Cuts{{0}, {1}, {2}, {3}, {4}}}) {
    double loss = 0;
    const auto gradients = golden.gradients(cuts, context, &loss);
    EXPECT_NEAR(loss, golden.expected("loss").item<double>(), 1e-5 * loss);
    for (const auto& [name, gradient] : gradients)
      EXPECT_LE(relative_error(gradient, golden.expected("grad." + name)), kPackedTolerance) << name;
  }
}

TEST_P(Packing, RecomputingEveryBlockGivesTheSameBits) {
  Golden golden(GetParam());
  golden.packing = true;
  ForwardContext context = training_context();
  const auto kept = golden.gradients(golden.one_cut(), context);
  context.recompute_blocks = golden.model->num_blocks();
  for (const auto& [name, gradient] : golden.gradients(golden.one_cut(), context))
    EXPECT_TRUE(gradient.equal(kept.at(name))) << name;
}

TEST_P(Packing, MakingQuickOperatorsAgainGivesTheSameBits) {
  Golden golden(GetParam());
  golden.packing = true;
  ForwardContext context = training_context();
  const auto kept = golden.gradients(golden.one_cut(), context);
  context.light = true;
  for (const auto& [name, gradient] : golden.gradients(golden.one_cut(), context))
    EXPECT_TRUE(gradient.equal(kept.at(name))) << name;
}

TEST_P(Packing, Bf16IsAsCloseToFp32AsTransformersIs) {
  Golden golden(GetParam(), at::kBFloat16);
  golden.packing = true;
  golden.model->set_dropout(0);
  double squares = 0, total = 0;
  for (const auto& [name, gradient] : golden.gradients(golden.one_cut(), training_context())) {
    const at::Tensor expected = golden.expected("grad." + name).to(at::kDouble);
    squares += (gradient.to(at::kDouble) - expected).square().sum().item<double>();
    total += expected.square().sum().item<double>();
  }
  const double theirs = golden.json("hf_bf16_error.json").at("grads").at("overall").get<double>();
  EXPECT_LE(std::sqrt(squares / total), 1.5 * theirs);
}

// Only where a GPU takes lengths from the device.
TEST_P(Packing, PaddingToFewFormsChangesNothing) {
  Golden golden(GetParam());
  if (golden.model->encoder_decoder()) GTEST_SKIP() << "T5's is in t5_kernel_test.cpp";
  golden.model->set_dtype(at::kBFloat16);
  const bool asked = golden.model->packs_by_starts(at::kCPU);
  golden.model->set_dtype(at::kFloat);
  if (!asked) GTEST_SKIP() << "never padded so";
  golden.packing = true;
  ForwardContext context = training_context();
  for (const int64_t recomputed : {int64_t{0}, golden.model->num_blocks()}) {
    context.recompute_blocks = recomputed;
    double plain_loss = 0, padded_loss = 0;
    golden.few_forms = false;
    const auto plain = golden.gradients(golden.one_cut(), context, &plain_loss);
    golden.few_forms = true;
    EXPECT_TRUE(golden.whole().lengths.empty());
    const auto padded = golden.gradients(golden.one_cut(), context, &padded_loss);
    EXPECT_NEAR(padded_loss, plain_loss, 1e-6 * plain_loss);
    for (const auto& [name, gradient] : padded)
      EXPECT_LE(relative_error(gradient, plain.at(name)), kPackedTolerance) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Packing, testing::ValuesIn(golden_names()),
                         [](const auto& param) { return param.param; });

// Samples of several lengths; some are longer than Mistral's window and than the positions that Qwen3's
// rotary embedding (type dynamic) knows. An encoder-decoder's targets have other lengths, and one source is
// empty.
EffectiveBatch long_and_short(int64_t vocab_size, bool encoder_decoder) {
  EffectiveBatch batch;
  int32_t token = 1;
  const auto next = [&] { return token = static_cast<int32_t>((token * 31 + 17) % vocab_size); };
  const std::vector<size_t> lengths{2, 90, 7, 41, 1, 64, 13}, target_lengths{33, 5, 1, 48, 17, 2, 9};
  for (size_t number = 0; number < lengths.size(); number++) {
    Sample sample;
    for (size_t i = 0; i < lengths[number]; i++) {
      sample.input_ids.push_back(next());
      if (!encoder_decoder) sample.labels.push_back(i * 2 < lengths[number] ? kIgnore : token);
    }
    if (encoder_decoder) {
      if (number == 4) sample.input_ids.clear();
      for (size_t i = 0; i < target_lengths[number]; i++)
        sample.labels.push_back(i % 5 == 3 ? kIgnore : next());
    }
    batch.supervised_tokens += supervised_tokens(sample, encoder_decoder);
    batch.samples.push_back(std::move(sample));
  }
  return batch;
}

// Trains everything or LoRA on every layer, with the model's dropout or LoRA's: the mask is that of the
// sample wherever it lies.
class PackingWithDropout : public testing::TestWithParam<std::string> {
 protected:
  static void expect_the_same_gradients(Golden& golden, double tolerance) {
    golden.batch = long_and_short(golden.model->vocab_size(), golden.model->encoder_decoder());
    const ForwardContext context = training_context();
    double padded_loss = 0, packed_loss = 0;
    golden.packing = false;
    const auto padded = golden.gradients(golden.one_cut(), context, &padded_loss);
    golden.packing = true;
    const auto packed = golden.gradients(golden.one_cut(), context, &packed_loss),
               single = golden.gradients({{6}, {3}, {0}, {1}, {2}, {5}, {4}}, context),
               again = golden.gradients(golden.one_cut(), context);
    EXPECT_NEAR(packed_loss, padded_loss, tolerance * padded_loss);
    for (const auto& [name, gradient] : packed) {
      EXPECT_GT(gradient.norm().item<double>(), 0) << name;
      EXPECT_LE(relative_error(gradient, padded.at(name)), tolerance) << name;
      EXPECT_LE(relative_error(gradient, single.at(name)), tolerance) << name;
      EXPECT_TRUE(gradient.equal(again.at(name))) << name;
    }
  }
};

TEST_P(PackingWithDropout, GradientsAreThoseOfPaddedRowsAndOfSingleSamples) {
  Golden golden(GetParam());
  LoraConfig lora;
  lora.r = 4;
  lora.lora_dropout = 0.3;
  lora.target_modules = "all-linear";
  golden.model = load_model(golden.directory / "model", {at::kCPU, at::kFloat, /*train_all=*/false});
  apply_lora(*golden.model, lora, 1, at::kCPU);
  golden.model->for_each_parameter([](const std::string& name, Parameter& p) {
    at::NoGradGuard no_grad;
    if (name.find("lora_B") != std::string::npos) p.value.tensor().fill_(0.01);  // else A has no gradient
  });
  if (golden.model->has_dropout()) golden.model->set_dropout(0.2);
  expect_the_same_gradients(golden, kPackedTolerance);
}

TEST_P(PackingWithDropout, TheSameWhenAllWeightsAreTrained) {
  Golden golden(GetParam());
  if (golden.model->has_dropout()) golden.model->set_dropout(0.3);
  expect_the_same_gradients(golden, kPackedTolerance);
}

INSTANTIATE_TEST_SUITE_P(Families, PackingWithDropout,
                         testing::Values("qwen2", "qwen2_yarn", "qwen3", "qwen3_dynamic", "llama", "llama_31",
                                         "mistral", "gemma2", "gemma3", "gemma4", "gemma4_small_lora", "phi3",
                                         "phi3_window", "granite", "t5_v1_0", "t5_v1_1", "umt5", "t5gemma",
                                         "t5gemma2"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace trainer
