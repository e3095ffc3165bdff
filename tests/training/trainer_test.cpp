// Whole optimizer steps, compared with Hugging Face in fp64 and with the same steps in other splits.
#include "trainer/training/trainer.h"

#include "models/golden.h"

namespace trainer {
namespace {

Config trainer_config_of(const Golden& golden) {
  const nlohmann::json settings = golden.json("settings.json");
  Config config;
  config.optimizer.learning_rate = settings["learning_rate"];
  config.optimizer.adam_beta1 = settings["adam_beta1"];
  config.optimizer.adam_beta2 = settings["adam_beta2"];
  config.optimizer.adam_epsilon = settings["adam_epsilon"];
  config.optimizer.weight_decay = settings["weight_decay"];
  config.optimizer.lr_scheduler_type = SchedulerType::constant;
  config.training.max_grad_norm = settings["max_grad_norm"];
  config.training.micro_batching = MicroBatching::samples;
  config.training.batch_size = 8;
  return config;
}

std::map<std::string, at::Tensor> trained(Model& model) {
  std::map<std::string, at::Tensor> out;
  model.for_each_parameter([&](const std::string& name, Parameter& p) {
    if (p.trained()) out[name] = p.value.tensor().detach().clone();
  });
  return out;
}

class ThreeSteps : public testing::TestWithParam<std::string> {};

// As close to fp64 as Transformers in fp32 is.
void expect_three_steps(const Golden& golden, const Config& config) {
  golden.model->set_dropout(0);
  const at::Tensor losses = golden.expected("losses3"), norms = golden.expected("grad_norms3");
  {
    Trainer trainer(config, *golden.model, at::kCPU, 3);
    for (int64_t step = 0; step < 3; step++) {
      const StepResult result = trainer.step(golden.batch);
      EXPECT_NEAR(result.loss, losses[step].item<double>(), 1e-5 * result.loss) << step;
      EXPECT_NEAR(result.grad_norm, norms[step].item<double>(), 1e-5 * result.grad_norm) << step;
    }
  }
  double squares = 0, total = 0;
  for (const auto& [name, tensor] : trained(*golden.model)) {
    const at::Tensor expected = golden.expected("after3." + name);
    EXPECT_EQ(expected.scalar_type(), at::kDouble);
    squares += (tensor.to(at::kDouble) - expected).square().sum().item<double>();
    total += expected.square().sum().item<double>();
  }
  EXPECT_LE(std::sqrt(squares / total), 3 * golden.json("hf32_distance.json")["overall"].get<double>());
}

TEST_P(ThreeSteps, AreAsCloseToFp64AsTransformersInFp32) {
  const Golden golden(GetParam());
  expect_three_steps(golden, trainer_config_of(golden));
}

TEST_P(ThreeSteps, AreSoWithPackedSamplesToo) {
  const Golden golden(GetParam());
  Config config = trainer_config_of(golden);
  config.data.packing = true;
  config.training.micro_batching = MicroBatching::tokens;
  config.training.batch_size = 1;
  // Of 74 tokens: several rows, of several samples.
  config.data.max_length = config.data.max_source_length = config.data.max_target_length = 30;
  expect_three_steps(golden, config);
}

INSTANTIATE_TEST_SUITE_P(Families, ThreeSteps, testing::ValuesIn(golden_names()),
                         [](const auto& param) { return param.param; });

// Weights after two steps with dropout on.
std::map<std::string, at::Tensor> after_two_steps(const std::function<void(Config&)>& change,
                                                  at::ScalarType dtype = at::kFloat) {
  const Golden golden("t5_v1_1", dtype);
  golden.model->set_dropout(0.1);
  Config config = trainer_config_of(golden);
  change(config);
  Trainer trainer(config, *golden.model, at::kCPU, 10);
  for (int step = 0; step < 2; step++) trainer.step(golden.batch);
  return trained(*golden.model);
}

TEST(Trainer, TheMicroBatchSizeDoesNotChangeTheUpdate) {
  const auto whole = after_two_steps([](Config&) {});
  for (const int64_t batch_size : {1, 2, 3}) {
    for (const auto& [name, tensor] :
         after_two_steps([&](Config& c) { c.training.batch_size = batch_size; })) {
      EXPECT_LE(relative_error(tensor, whole.at(name)), 1e-5)
          << name << " in micro-batches of " << batch_size;
    }
  }
}

TEST(Trainer, GradientCheckpointingChangesNoBit) {
  const auto kept = after_two_steps([](Config&) {});
  for (const Recompute& recompute :
       {Recompute::light(), Recompute::blocks(1), Recompute::blocks(3), Recompute(true)}) {
    for (const auto& [name, tensor] :
         after_two_steps([&](Config& c) { c.memory.gradient_checkpointing = recompute; })) {
      EXPECT_TRUE(tensor.equal(kept.at(name))) << name;
    }
  }
}

TEST(Trainer, TheSameConfigurationGivesTheSameBitsAndAnotherSeedDoesNot) {
  const auto bf16 = [](int64_t seed) {
    return after_two_steps([&](Config& c) { c.seed = seed; }, at::kBFloat16);
  };
  const auto a = bf16(1), b = bf16(1), c = bf16(2);
  bool differs = false;
  for (const auto& [name, tensor] : a) {
    EXPECT_TRUE(tensor.equal(b.at(name))) << name;
    differs = differs || !tensor.equal(c.at(name));
  }
  EXPECT_TRUE(differs);
}

TEST(Trainer, GradientsOfBf16WeightsAreSummedInFp32WhereAskedFor) {
  // Sums of 5 micro-batches: fp32 sums are nearer to the gradient of one micro-batch than bf16 sums are.
  const auto distance = [](StateDtype dtype) {
    const Golden golden("qwen2", at::kBFloat16);
    const std::vector<TrainedParameter> parameters = trained_parameters(*golden.model);
    Gradients gradients(parameters, dtype);
    for (int64_t repeat = 0; repeat < 64; repeat++) {
      golden.model->loss(golden.whole(), ForwardContext{}).loss.backward();
    }
    const at::Tensor sum = gradients.get(parameters[0]).to(at::kDouble) / 64;
    gradients.clear();
    golden.model->loss(golden.whole(), ForwardContext{}).loss.backward();
    return relative_error(sum, gradients.get(parameters[0]));
  };
  EXPECT_LE(distance(StateDtype::fp32), 1e-6);
  EXPECT_GT(distance(StateDtype::bf16), 1e-3);
}

TEST(Trainer, GoesOnOnAnotherDeviceAsIfItHadBeenThereFromTheStart) {
  for (const char* name : {"t5_v1_1", "qwen2_lora"}) {
    const Golden stays(name), moves(name);
    Config config = trainer_config_of(stays);
    Trainer expected(config, *stays.model, at::kCPU, 10), moved(config, *moves.model, at::kCPU, 10);
    for (int step = 0; step < 2; step++) {
      expected.step(stays.batch);
      moved.step(moves.batch);
    }
    std::map<std::string, const void*> before;
    moves.model->for_each_parameter(
        [&](const std::string& n, Parameter& p) { before[n] = p.value.tensor().const_data_ptr(); });
    moved.move_to(at::kCPU);
    moves.model->for_each_parameter([&](const std::string& n, Parameter& p) {
      EXPECT_NE(before.at(n), p.value.tensor().const_data_ptr()) << n;
    });
    for (int step = 0; step < 2; step++) {
      EXPECT_EQ(expected.step(stays.batch).loss, moved.step(moves.batch).loss);
    }
    EXPECT_EQ(moved.steps_taken(), 4);
    const auto a = trained(*stays.model), b = trained(*moves.model);
    for (const auto& [parameter, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(parameter))) << parameter;
  }
}

}  // namespace
}  // namespace trainer
