// What the memory plan follows: the model, the configuration, the target, and how full packed rows are.
#include <limits>

#include <gtest/gtest.h>

#include "memory/gpu_graph.h"
#include "training/planned_models.h"

namespace trainer {
namespace {

// Steps of random lengths, whose rows are as full as best fit makes them.
TEST(Plan, PackedStepsStayWithinIt) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "config.json")
      << decoder({{"model_type", "qwen3"}, {"head_dim", 32}}).dump();
  for (const bool lora : {false, true}) {
    Config config;
    config.data.packing = true;
    config.data.max_length = 100;
    config.training.batch_size = 4;
    config.training.effective_batch_size = 24;
    if (lora) config.lora.emplace();
    const int64_t planned = plan_memory(config, directory.path(), {}).peak();
    const CountsAllocations counts;
    CountingAllocator& allocator = CountingAllocator::instance();
    const int64_t before = allocator.in_use();
    allocator.reset_peak();
    {
      const std::unique_ptr<Model> model = model_on_meta(directory.path(), at::kFloat, !lora);
      model->for_each_parameter([&](const std::string&, Parameter& parameter) {
        parameter.value = at::full(parameter.shape, 0.01).set_requires_grad(!lora);
      });
      prepare_for_training(*model, config, model->vocab_size(), at::kCPU);
      Trainer trainer(config, *model, at::kCPU, 10);
      const UpdateCheck check(*model);
      uint64_t state = 1;
      for (int step = 0; step < 6; step++) {
        EffectiveBatch batch;
        for (int64_t i = 0; i < config.effective_batch_size(); i++) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          const size_t length = 1 + (state >> 33) % 100;
          batch.samples.push_back({std::vector<int32_t>(length, 1), std::vector<int32_t>(length, 1)});
          batch.supervised_tokens += static_cast<int64_t>(length) - 1;
        }
        const StepResult result = trainer.step(batch);
        EXPECT_EQ(result.packed_budget.tokens, 400);
        EXPECT_GT(result.cuts.size(), 1u);
      }
    }
    const int64_t measured = allocator.peak() - before;
    EXPECT_LE(measured, planned) << lora;
    EXPECT_GE(static_cast<double>(measured), 0.9 * static_cast<double>(planned)) << lora;
  }
}

MemoryPlan plan_of(const Json& model, const Config& config = {}) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "config.json") << model.dump();
  return plan_memory(config, directory.path(), {});
}

// Each step of recompute takes less memory than the one before it, by the plan and measured.
TEST(Plan, StepsOfRecomputeTakeLessAndLess) {
  const test::TemporaryDirectory directory;
  for (const Json& model :
       {decoder({{"model_type", "qwen3"}, {"head_dim", 64}}), decoder(Json::object()), t5(Json::object())}) {
    std::ofstream(directory.path() / "config.json") << model.dump();
    Config config;
    config.lora.emplace();
    config.training.effective_batch_size = 4;
    config.training.batch_size = 4;
    config.data.max_length = config.data.max_source_length = config.data.max_target_length = 128;
    int64_t planned = std::numeric_limits<int64_t>::max(), measured = planned;
    for (const Recompute& recompute : {Recompute(false), Recompute::light(), Recompute::blocks(1),
                                       Recompute::blocks(2), Recompute(true)}) {
      config.memory.gradient_checkpointing = recompute;
      const MemoryPlan plan = plan_memory(config, directory.path(), {});
      const int64_t real = measured_peak(config, directory.path(), at::kFloat);
      EXPECT_LT(plan.peak(), planned) << model["model_type"] << " " << plan.recompute_blocks;
      EXPECT_LT(real, measured) << model["model_type"] << " " << plan.recompute_blocks;
      EXPECT_TRUE(plan.recompute_setting() == recompute || recompute == Recompute(true));
      planned = plan.peak();
      measured = real;
    }
  }
}

TEST(Plan, CountsWhatGraphsKeepBetweenPassesAndUpdates) {
  const Json model = decoder({{"model_type", "qwen3"}, {"head_dim", 32}});
  for (const bool lora : {false, true}) {
    Config config;
    if (lora) config.lora.emplace();
    const MemoryPlan launched = plan_of(model, config);
    set_recorder_for_cpu([](const GpuWork&) { return RecordedWork(); });
    const MemoryPlan graphs = plan_of(model, config);
    set_recorder_for_cpu({});
    EXPECT_EQ(graphs.weights, launched.weights);
    EXPECT_EQ(graphs.activations, launched.activations);
    EXPECT_EQ(graphs.gradients, lora ? graphs.adapters : graphs.weights);
    EXPECT_GT(graphs.peak(), launched.peak());
  }
}

TEST(Plan, FollowsTheModel) {
  const MemoryPlan plan = plan_of(decoder(Json::object()));
  const MemoryPlan deeper = plan_of(decoder({{"num_hidden_layers", 8}}));
  const MemoryPlan wider = plan_of(decoder({{"intermediate_size", 1280}}));
  // A layer: q and o 256 x 256, k and v 256 x 64, three of 256 x 640, biases of q, k and v, two norms.
  const int64_t layer = 4 * (2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 640 + 256 + 2 * 64 + 2 * 256);
  EXPECT_EQ(deeper.weights - plan.weights, 4 * layer);
  EXPECT_EQ(deeper.optimizer_state - plan.optimizer_state, 2 * 4 * layer);
  EXPECT_EQ(wider.weights - plan.weights, 4 * int64_t{4} * 3 * 256 * 640);
  EXPECT_GT(deeper.activations, 1.9 * static_cast<double>(plan.activations));
  EXPECT_GT(wider.activations, plan.activations);
}

TEST(Plan, FollowsTheConfiguration) {
  const Json model = t5(Json::object());
  Config config;
  config.training.effective_batch_size = 64;
  const MemoryPlan plan = plan_of(model, config);
  Config changed = config;
  changed.memory.gradient_checkpointing = Recompute::blocks(3);
  const MemoryPlan half = plan_of(model, changed);
  changed.memory.gradient_checkpointing = true;
  const MemoryPlan all = plan_of(model, changed);
  EXPECT_LT(half.peak(), plan.peak());
  EXPECT_LT(all.peak(), half.peak());
  changed.training.batch_size = 2;
  EXPECT_LT(plan_of(model, changed).peak(), all.peak());
  EXPECT_EQ(plan_of(model, changed).gradients, all.gradients);
  changed.optimizer.master_weights = true;
  changed.lora.emplace().target_modules = std::vector<std::string>{"q", "v"};
  changed.lora->r = 8;
  const MemoryPlan lora = plan_of(model, changed);
  EXPECT_EQ(lora.weights, plan.weights);
  EXPECT_GT(lora.adapters, 0);
  EXPECT_LT(lora.optimizer_state, plan.optimizer_state / 10);
}

// A plan made here for a GPU is the GPU's: it has no panels of widened weights, but blocks of 512 bytes.
TEST(Plan, IsMadeForTheTarget) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "config.json") << decoder(Json::object()).dump();
  PlanTarget target;
  target.device = c10::kCUDA;
  target.dtype = at::kBFloat16;
  const MemoryPlan plan = plan_memory(Config{}, directory.path(), target);
  EXPECT_EQ(plan.weights % 512, 0);
  EXPECT_GT(plan.reserve, 0);
  target.device = c10::kCPU;
  EXPECT_NE(plan_memory(Config{}, directory.path(), target).peak(), plan.peak());
}

}  // namespace
}  // namespace trainer
