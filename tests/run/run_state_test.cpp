// A trainer that resumes from a checkpoint gives the same bits as one that was not stopped.
#include "run/run_state.h"

#include "trainer/base/error.h"
#include "trainer/training/trainer.h"

#include "models/golden.h"
#include "optim/all_in_codes.h"
#include "optim/momentum_sgd.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::TemporaryDirectory;

struct Setting {
  std::string golden;
  at::ScalarType dtype = at::kFloat;
  bool master = false;
  StateDtype state = StateDtype::automatic;
  OptimizerFactory optimizer = make_optimizer;
  std::string name = "adamw";
};

Config config_of(const Setting& setting) {
  Config config;
  config.optimizer.name = setting.name;
  config.optimizer.beta1 = 0.9;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 1;
  config.optimizer.master_weights = setting.master;
  config.optimizer.state_dtype = setting.state;
  config.training.batch_size = 2;
  return config;
}

Artefacts artefacts_of(const Golden& golden) {
  Artefacts artefacts;
  artefacts.base = golden.directory / "model";
  if (std::filesystem::exists(golden.directory / "adapter"))
    artefacts.adapter = read_adapter_config(golden.directory / "adapter");
  return artefacts;
}

// Everything that steps change.
std::map<std::string, at::Tensor> all_of(Trainer& trainer) {
  std::map<std::string, at::Tensor> all;
  for (const TrainedParameter& parameter : trainer.parameters())
    all[parameter.name] = parameter.value.detach().clone();
  for (const auto& [parameter, kept] : trainer.optimizer_state().tensors) {
    for (const auto& [what, tensor] : kept) all[parameter + "." + what] = tensor.clone();
  }
  return all;
}

RunState state_of(const Golden& golden, Trainer& trainer) {
  RunState state;
  state.weights = artefacts_of(golden).weights(*golden.model);
  state.optimizer = trainer.optimizer_state();
  state.position.emplace();
  return state;
}

class GoesOn : public ::testing::TestWithParam<Setting> {};

TEST_P(GoesOn, WithTheSameBits) {
  const Config config = config_of(GetParam());
  const Golden stays(GetParam().golden, GetParam().dtype), begins(GetParam().golden, GetParam().dtype),
      goes_on(GetParam().golden, GetParam().dtype);
  for (const Golden* golden : {&stays, &begins, &goes_on})
    if (golden->model->has_dropout()) golden->model->set_dropout(0.1);
  const OptimizerFactory& optimizer = GetParam().optimizer;
  Trainer whole(config, *stays.model, at::kCPU, 10, optimizer),
      first(config, *begins.model, at::kCPU, 10, optimizer);
  for (int step = 0; step < 5; step++) whole.step(stays.batch);
  for (int step = 0; step < 3; step++) first.step(begins.batch);

  TemporaryDirectory checkpoint;
  // A copy is what it was when it was made.
  const RunState copy = state_of(begins, first).copied_to_host();
  first.step(begins.batch);
  copy.write(artefacts_of(begins), checkpoint.path());

  Trainer second(config, *goes_on.model, at::kCPU, 10, optimizer);
  artefacts_of(goes_on).load(*goes_on.model, checkpoint.path());
  load_optimizer(second, checkpoint.path());
  second.set_steps_taken(3);
  EXPECT_EQ(second.optimizer_state().steps_taken, 3);
  for (int step = 0; step < 2; step++) second.step(goes_on.batch);
  const auto expected = all_of(whole), found = all_of(second);
  EXPECT_EQ(expected.size(), found.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(tensor.equal(found.at(name))) << name;
}

Setting with_momentum_sgd(const std::string& golden, at::ScalarType dtype) {
  return {golden, dtype, false, StateDtype::automatic, test::make_momentum_sgd};
}

Setting with_adafactor(const std::string& golden, at::ScalarType dtype, bool master = false) {
  return {golden, dtype, master, StateDtype::automatic, make_optimizer, "adafactor"};
}

Setting with_adamw_8bit(const std::string& golden, at::ScalarType dtype, bool master = false) {
  return {golden, dtype, master, StateDtype::automatic, test::make_adamw_8bit, "adamw_8bit"};
}

INSTANTIATE_TEST_SUITE_P(
    Types, GoesOn,
    ::testing::Values(Setting{"t5_v1_1"}, Setting{"t5_v1_1", at::kBFloat16},
                      Setting{"qwen2", at::kBFloat16, /*master=*/true},
                      Setting{"qwen2", at::kFloat, false, StateDtype::bf16}, Setting{"qwen2_lora"},
                      Setting{"qwen2_lora", at::kBFloat16}, Setting{"qwen2_dora"}, Setting{"qwen3_saved"},
                      Setting{"t5_v1_1_vocabulary"}, Setting{"llama_dora_vocabulary"},
                      with_momentum_sgd("qwen2_lora", at::kFloat),
                      with_momentum_sgd("t5_v1_1", at::kBFloat16), with_adafactor("t5_v1_1", at::kFloat),
                      with_adafactor("t5_v1_1", at::kBFloat16),
                      with_adafactor("qwen2", at::kBFloat16, /*master=*/true),
                      with_adafactor("qwen2_lora", at::kBFloat16), with_adamw_8bit("qwen2_lora", at::kFloat),
                      with_adamw_8bit("t5_v1_1", at::kBFloat16),
                      with_adamw_8bit("qwen2", at::kBFloat16, /*master=*/true)),
    [](const auto& param) { return param.param.golden + "_" + std::to_string(param.index); });

TEST(RunState, AStateThatDoesNotFitIsRefusedWithEachTensorAndChangesNothing) {
  const Golden t5("t5_v1_1"), qwen("qwen2");
  const Config config = config_of({"t5_v1_1"});
  Trainer one(config, *t5.model, at::kCPU, 10), other(config, *qwen.model, at::kCPU, 10);
  TemporaryDirectory checkpoint;
  state_of(t5, one).write(artefacts_of(t5), checkpoint.path());
  const auto before = all_of(other);
  const std::string weights =
      error_message<FormatError>([&] { artefacts_of(qwen).load(*qwen.model, checkpoint.path()); });
  EXPECT_TRUE(contains(weights, "missing: ")) << weights;
  EXPECT_TRUE(contains(weights, "unexpected: shared.weight")) << weights;
  const std::string state = error_message<FormatError>([&] { load_optimizer(other, checkpoint.path()); });
  EXPECT_TRUE(contains(state, "optimizer.safetensors")) << state;
  EXPECT_TRUE(contains(state, "unexpected: shared.weight.exp_avg")) << state;
  for (const auto& [name, tensor] : all_of(other)) EXPECT_TRUE(tensor.equal(before.at(name))) << name;
}

TEST(RunState, ACheckpointOfAnotherOptimizerIsRefusedWithBothNames) {
  const Golden golden("qwen2_lora");
  const Config config = config_of({"qwen2_lora"});
  Trainer sgd(config, *golden.model, at::kCPU, 10, test::make_momentum_sgd),
      adamw(config, *golden.model, at::kCPU, 10);
  TemporaryDirectory checkpoint;
  state_of(golden, sgd).write(artefacts_of(golden), checkpoint.path());
  const std::string message = error_message<FormatError>([&] { load_optimizer(adamw, checkpoint.path()); });
  EXPECT_TRUE(contains(message, (checkpoint.path() / "optimizer.safetensors").string())) << message;
  EXPECT_TRUE(contains(message, "holds the state of the optimizer 'momentum_sgd'")) << message;
  EXPECT_TRUE(contains(message, "this run uses 'adamw'")) << message;
}

}  // namespace
}  // namespace trainer
