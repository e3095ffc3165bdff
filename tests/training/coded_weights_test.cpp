// Whole models whose frozen weights are not plain tensors: training, moving and generating work as with dense
// weights.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/generation/generate.h"
#include "trainer/training/trainer.h"

#include "models/golden.h"
#include "support/coded_weight.h"
#include "training/prepare_model.h"

namespace trainer {
namespace {

class CodedModel : public testing::TestWithParam<std::string> {
 protected:
  // The golden's LoRA model with codes, or with their values as tensors.
  static std::unique_ptr<Golden> coded(bool dense, at::ScalarType type) {
    auto golden = std::make_unique<Golden>(GetParam(), type);
    EXPECT_GT(test::code_frozen_weights(*golden->model, dense), 10);
    return golden;
  }
  static Config config() {
    Config config;
    config.optimizer.learning_rate = 1e-3;
    config.training.batch_size = 2;
    config.lora.emplace();
    return config;
  }
};

TEST_P(CodedModel, TrainsAsTheDenseOneAndKeepsItsCodes) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto codes = coded(false, type), dense = coded(true, type);
    const Config settings = config();
    Trainer on_codes(settings, *codes->model, at::kCPU, 4), on_dense(settings, *dense->model, at::kCPU, 4);
    const UpdateCheck check(*codes->model);
    for (int step = 0; step < 3; step++) {
      const StepResult a = on_codes.step(codes->batch), b = on_dense.step(dense->batch);
      EXPECT_EQ(a.loss, b.loss);
      EXPECT_EQ(a.grad_norm, b.grad_norm);
      if (step == 1) on_codes.move_to(at::kCPU);
    }
    EXPECT_FALSE(check.after_update(1e-3).empty());
  }
}

TEST_P(CodedModel, AnswersAsTheDenseOne) {
  const auto codes = coded(false, at::kFloat), dense = coded(true, at::kFloat);
  GenerationConfig generation;
  generation.max_new_tokens = 8;
  const std::vector<std::vector<int32_t>> prompts{codes->batch.samples[0].input_ids,
                                                  codes->batch.samples[1].input_ids};
  EXPECT_EQ(generate(*codes->model, prompts, generation, at::kCPU),
            generate(*dense->model, prompts, generation, at::kCPU));
}

INSTANTIATE_TEST_SUITE_P(Families, CodedModel,
                         testing::Values("llama_lora", "llama_lora_head", "qwen2_dora", "t5_v1_0_lora",
                                         "t5_v1_1_lora_all"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace trainer
