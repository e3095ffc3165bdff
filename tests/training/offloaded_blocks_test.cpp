// Steps whose weights and activations are offloaded have the bits of steps without, on the CPU and with the
// copies that a GPU needs.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/generation/generate.h"
#include "trainer/memory/device_memory.h"
#include "trainer/training/plan.h"
#include "trainer/training/trainer.h"
#include "trainer/training/worst_batch.h"

#include "memory/copy_stream.h"
#include "memory/offload.h"
#include "models/golden.h"
#include "support/temporary_directory.h"
#include "training/prepare_model.h"
#include "weights/weight_format.h"

namespace trainer {
namespace {

constexpr Offload kNothing{}, kWeights{.weights = true}, kActivations{.activations = true},
    kAll{.optimizer = true, .weights = true, .activations = true};

struct OffloadCase {
  std::string name;
  bool lora = false;
  at::ScalarType type = at::kFloat;
  std::function<void(Config&)> change = [](Config&) {};
  std::optional<Quantisation> quantise = std::nullopt;
  std::string form = "model";  // the golden's directory; "stored": in NF4
};

// A run on a golden's model and data. Two of the same case are equal.
struct OffloadedRun {
  OffloadedRun(const OffloadCase& c, const Offload& offload)
      : batch(Golden(c.name, at::kFloat, std::nullopt, c.form).batch) {
    config.optimizer.learning_rate = 1e-3;
    config.optimizer.lr_scheduler_type = SchedulerType::constant;
    config.training.batch_size = 2;
    config.data.max_source_length = config.data.max_target_length = config.data.max_length = 32;
    config.memory.gradient_checkpointing = true;
    config.memory.offload = offload;
    if (c.lora) {
      config.lora.emplace();
      config.lora->r = 4;
      config.lora->lora_dropout = 0.1;
      config.lora->target_modules = "all-linear";
    }
    c.change(config);
    LoadOptions options{at::kCPU, c.type, /*train_all=*/!c.lora};
    options.offload_weights = offload.weights;
    options.quantise = c.quantise;
    model = load_model(golden_directory(c.name) / c.form, options);
    if (model->has_dropout()) config.training.dropout = 0.1;
    prepare_for_training(*model, config, model->vocab_size(), at::kCPU);
    trainer.emplace(config, *model, at::kCPU, 1 << 30);
  }

  Config config;
  std::unique_ptr<Model> model;
  EffectiveBatch batch;
  std::optional<Trainer> trainer;
};

void expect_same_steps(OffloadedRun& a, OffloadedRun& b, int steps) {
  for (int step = 0; step < steps; step++) {
    const StepResult first = a.trainer->step(a.batch), second = b.trainer->step(b.batch);
    EXPECT_EQ(first.loss, second.loss) << step;
    EXPECT_EQ(first.grad_norm, second.grad_norm) << step;
    EXPECT_GT(first.cuts.size(), 1u) << "gradients are summed";
  }
  for (size_t i = 0; i < a.trainer->parameters().size(); i++) {
    const TrainedParameter &first = a.trainer->parameters()[i], &second = b.trainer->parameters()[i];
    EXPECT_TRUE(first.value.equal(second.value)) << first.name;
  }
}

// `true`: with copies, as on a GPU. Otherwise offloaded tensors are used where they lie.
class OffloadedSteps : public testing::TestWithParam<std::tuple<OffloadCase, bool>> {
 protected:
  OffloadedSteps() {
    set_offload_directory(directory_.path());
    if (std::get<1>(GetParam())) copies_.emplace();
  }

  static const OffloadCase& of_case() { return std::get<0>(GetParam()); }

 private:
  test::TemporaryDirectory directory_;
  std::optional<CopyAsOnGpu> copies_;
};

TEST_P(OffloadedSteps, HaveTheBitsOfStepsOnTheDevice) {
  for (const Offload& offload : {kWeights, kActivations, kAll}) {
    OffloadedRun plain(of_case(), kNothing), offloaded(of_case(), offload);
    const UpdateCheck check(*offloaded.model);
    expect_same_steps(plain, offloaded, 3);
    EXPECT_FALSE(check.after_update(1e-3).empty());
    const bool quantised = of_case().quantise || of_case().form != "model";  // scales are never there
    const bool in_model_file =
        of_case().lora && of_case().type == at::kFloat && !quantised && !offload.activations;
    EXPECT_EQ(offload_use().in_use > 0, !in_model_file);
  }
  EXPECT_EQ(offload_use().in_use, 0) << "all is given back";
}

TEST_P(OffloadedSteps, GoOnAfterAMoveToAnotherDevice) {
  OffloadedRun plain(of_case(), kNothing), offloaded(of_case(), kAll);
  expect_same_steps(plain, offloaded, 1);
  // Both move: MKL's sums depend on how an operand is aligned, and frozen weights leave the model's file.
  plain.trainer->move_to(at::kCPU);
  offloaded.trainer->move_to(at::kCPU);
  expect_same_steps(plain, offloaded, 1);
}

TEST_P(OffloadedSteps, AnswerAsOnTheDeviceBeforeAndAfterAnUpdate) {
  OffloadedRun plain(of_case(), kNothing), offloaded(of_case(), kWeights);
  GenerationConfig generation;
  generation.max_new_tokens = 6;
  const std::vector<std::vector<int32_t>> prompts{plain.batch.samples[0].input_ids};
  for (int step = 0; step < 2; step++) {
    EXPECT_EQ(generate(*offloaded.model, prompts, generation, at::kCPU),
              generate(*plain.model, prompts, generation, at::kCPU));
    expect_same_steps(plain, offloaded, 1);
  }
}

const std::vector<OffloadCase>& cases() {
  static const std::vector<OffloadCase> all{
      {"t5_v1_1"},
      {"t5_v1_0", false, at::kBFloat16, [](Config& c) { c.optimizer.master_weights = true; }},
      {"umt5", false, at::kBFloat16, [](Config& c) { c.optimizer.grad_dtype = StateDtype::fp32; }},
      {"t5_v1_1", true, at::kBFloat16},
      {"llama", false, at::kBFloat16},
      {"qwen2", false, at::kFloat, [](Config& c) { c.data.packing = true; }},
      {"llama", true},
      {"qwen3", true, at::kFloat, [](Config& c) { c.lora->use_dora = true; }},
      {"gemma3", true, at::kBFloat16},
      {"phi3", true, at::kFloat, [](Config&) {}, Quantisation{}},
      {"qwen3", true, at::kBFloat16, [](Config&) {}, Quantisation{}},
      {"llama", true, at::kFloat, [](Config& c) { c.lora->use_dora = true; }, Quantisation{false}},
      {"llama_nf4", true, at::kFloat, [](Config& c) { c.training.batch_size = 1; }, std::nullopt, "stored"},
      {"phi3", true, at::kBFloat16, [](Config&) {}, Quantisation{.format = "fp8"}},
      {"llama_fp8", true, at::kFloat, [](Config& c) { c.training.batch_size = 1; }, std::nullopt, "block"},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadedSteps,
                         testing::Combine(testing::ValuesIn(cases()), testing::Bool()),
                         [](const auto& param) {
                           const OffloadCase& c = std::get<0>(param.param);
                           return c.name + (c.lora ? "_lora" : "_full") +
                                  (c.type == at::kFloat ? "_fp32_" : "_bf16_") +
                                  (c.quantise ? weight_format(c.quantise->format).name().name + "_" : "") +
                                  c.form + (std::get<1>(param.param) ? "_copied" : "_in_place");
                         });

// Weights of 100 MB, as many bytes of gradients, and twice as many of optimizer state.
TEST(OffloadedModel, TrainsInLessMemoryThanItsWeightsTake) {
  return_large_blocks();  // as a run does; else glibc keeps freed tensors in its heap
  test::TemporaryDirectory directory;
  set_offload_directory(directory.path());
  const nlohmann::json model_config{
      {"model_type", "llama"},     {"vocab_size", 1000},     {"hidden_size", 512},
      {"intermediate_size", 1408}, {"num_hidden_layers", 8}, {"num_attention_heads", 8},
      {"num_key_value_heads", 8},  {"hidden_act", "silu"},   {"max_position_embeddings", 512},
      {"rms_norm_eps", 1e-6},      {"rope_theta", 10000.0},  {"tie_word_embeddings", false}};
  std::ofstream(directory.path() / "config.json") << model_config.dump();
  Config config;
  config.memory.offload = kAll;
  config.data.max_length = 32;
  config.training.batch_size = 1;
  config.training.effective_batch_size = 2;
  const std::unique_ptr<Model> model =
      model_on_meta(directory.path(), at::kFloat, /*train_all=*/true, std::nullopt, /*offload_weights=*/true);
  int64_t weights = 0;
  model->for_each_parameter([&](const std::string&, Parameter& parameter) {
    const bool offloaded = parameter.value.offloaded() != nullptr;
    const at::Tensor value =
        offloaded ? offloaded_zeros(parameter.shape, at::kFloat) : at::empty(parameter.shape);
    parameter.value = value.fill_(0.01);
    release_offloaded(value);
    if (offloaded) parameter.value.set_offloaded();
    parameter.value.set_requires_grad(true);
    weights += parameter.value.nbytes();
  });
  Trainer trainer(config, *model, at::kCPU, 4);
  const EffectiveBatch batch = worst_batch(config, /*encoder_decoder=*/false);
  trainer.step(batch);  // what the libraries allocate once
  reset_peak_memory(at::kCPU);
  const int64_t before = memory_use(at::kCPU).current;
  for (int step = 0; step < 2; step++) trainer.step(batch);
  EXPECT_GT(offload_use().in_use, 4 * weights - 20'000'000);
  EXPECT_LT(memory_use(at::kCPU).peak - before, weights / 2);
  EXPECT_LT(memory_use(at::kCPU).current - before, weights / 10);
}

// As the plan says, for samples of 2,048 tokens.
TEST(OffloadedModel, OfSevenBillionParametersIsTrainedInFullOn16GB) {
  Config config;
  config.memory.offload = {.optimizer = true, .weights = true, .activations = true};
  config.training.batch_size = 1;
  config.training.effective_batch_size = 8;
  config.data.max_length = 2048;
  PlanTarget target;
  target.device = c10::kCUDA;
  target.dtype = at::kBFloat16;
  const MemoryPlan plan =
      plan_memory(config, std::filesystem::path(SOURCE_DIR) / "configs/models/qwen2.5-7b.json", target);
  EXPECT_LT(plan.total(), 16'000'000'000);
  EXPECT_GT(plan.offloaded.weights, 12'000'000'000);
  EXPECT_EQ(plan.recompute_blocks, plan.num_blocks);
}

}  // namespace
}  // namespace trainer
