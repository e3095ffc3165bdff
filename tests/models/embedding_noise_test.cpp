// Every architecture gives its embedded inputs the noise that a step asks for.
#include <ATen/core/grad_mode.h>

#include "models/golden.h"

namespace trainer {
namespace {

at::Tensor states_with(const Model& model, const MicroBatch& micro, bool training, double noise) {
  const at::NoGradGuard no_grad;
  ForwardContext context;
  context.training = training;
  context.embedding_noise = noise;
  return model.supervised_states(micro, context);
}

void expect_noise_in_training(Model& model, const MicroBatch& micro) {
  if (model.has_dropout()) model.set_dropout(0);
  const at::Tensor plain = states_with(model, micro, /*training=*/true, 0);
  EXPECT_FALSE(states_with(model, micro, true, 5).equal(plain));
  EXPECT_TRUE(states_with(model, micro, false, 5).equal(states_with(model, micro, false, 0)));
}

class EmbeddingNoise : public testing::TestWithParam<std::string> {};

TEST_P(EmbeddingNoise, IsThereInTraining) {
  const Golden golden(GetParam());
  expect_noise_in_training(*golden.model, golden.whole());
}

INSTANTIATE_TEST_SUITE_P(Families, EmbeddingNoise,
                         testing::Values("t5_v1_1", "t5gemma", "t5gemma2", "qwen2", "gemma4", "lfm2"));

TEST(NoiseOfAnEncoderAlone, IsThereInTraining) {
  LoadOptions options;
  options.head = ScoreHeadSpec{.score = RowScore::label, .labels = {"a", "b"}, .encoder_only = true};
  const auto model = load_model(golden_directory("t5_v1_1") / "model", options);
  EffectiveBatch batch;
  batch.samples = {{{4, 5, 6}, {kIgnore, kIgnore, kIgnore, 1}}};
  expect_noise_in_training(*model, collate(batch, {0}, model->collate_options(), at::kCPU));
}

}  // namespace
}  // namespace trainer
