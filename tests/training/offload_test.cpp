// memory.offload changes where things lie, and no bit of what is computed.
#include "memory/offload.h"

#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/training/plan.h"
#include "trainer/training/solve_plan.h"
#include "trainer/training/trainer.h"

#include "models/golden.h"
#include "optim/momentum_sgd.h"
#include "support/temporary_directory.h"
#include "training/failing_allocations.h"

namespace trainer {
namespace {

using test::make_momentum_sgd;
using test::TemporaryDirectory;

struct OffloadSetting {
  std::string golden;
  at::ScalarType dtype = at::kFloat;
  bool master = false;
  std::string optimizer = "adamw";  // "momentum_sgd": one that is not part of the program
};

// Every optimizer that the configuration allows.
std::vector<std::string> optimizer_names() {
  std::ifstream in(std::string(SOURCE_DIR) + "/configs/schema.json");
  return nlohmann::json::parse(in)
      .at("/properties/optimizer/properties/name/enum"_json_pointer)
      .get<std::vector<std::string>>();
}

Config config_of_setting(const OffloadSetting& setting) {
  Config config;
  config.optimizer.name = setting.optimizer;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.lr_scheduler_type = SchedulerType::constant;
  config.optimizer.master_weights = setting.master;
  config.training.max_grad_norm = 0.5;
  config.training.batch_size = 2;
  config.recovery.grow_after = 0;
  return config;
}

// A model and its trainer, whose optimizer's state lies in files or in memory.
struct OffloadBench {
  OffloadBench(const OffloadSetting& setting, bool offloads)
      : golden(setting.golden, setting.dtype), config(config_of_setting(setting)) {
    config.memory.offload.optimizer = offloads;
    if (golden.model->has_dropout()) golden.model->set_dropout(0.1);
    const bool own = setting.optimizer == "momentum_sgd";
    trainer.emplace(config, *golden.model, at::kCPU, 10,
                    own ? OptimizerFactory(make_momentum_sgd) : OptimizerFactory(make_optimizer));
  }
  StepResult step(const StepCuts* replay = nullptr) { return trainer->step(golden.batch, replay); }
  // Weights and state.
  std::map<std::string, at::Tensor> all() const {
    std::map<std::string, at::Tensor> out;
    for (const TrainedParameter& parameter : trainer->parameters())
      out[parameter.name] = parameter.value.detach().clone();
    for (const auto& [parameter, kept] : trainer->optimizer_state().tensors) {
      for (const auto& [what, tensor] : kept) out[parameter + "." + what] = tensor.clone();
    }
    return out;
  }
  bool state_is_offloaded() const {
    for (const auto& [parameter, kept] : trainer->optimizer_state().tensors) {
      for (const auto& [what, tensor] : kept) {
        if (!is_offloaded(tensor)) return false;
      }
    }
    return true;
  }

  Golden golden;
  Config config;
  std::optional<Trainer> trainer;
};

void expect_same_bits(const OffloadBench& a, const OffloadBench& b, const std::string& where = "") {
  const auto second = b.all();
  for (const auto& [name, tensor] : a.all()) ASSERT_TRUE(tensor.equal(second.at(name))) << name << where;
}

class Offloaded : public ::testing::Test {
 protected:
  Offloaded() { set_offload_directory(directory_.path()); }
  TemporaryDirectory directory_;
};

TEST_F(Offloaded, StateGivesTheSameBits) {
  for (const std::string& optimizer : optimizer_names()) {
    for (const OffloadSetting& setting :
         {OffloadSetting{"t5_v1_1"}, OffloadSetting{"t5_v1_1", at::kBFloat16},
          OffloadSetting{"t5_v1_0_lora", at::kBFloat16}, OffloadSetting{"llama"},
          OffloadSetting{"llama", at::kBFloat16}, OffloadSetting{"llama", at::kBFloat16, true}}) {
      OffloadSetting with = setting;
      with.optimizer = optimizer;
      OffloadBench above(with, false), below(with, true);
      ASSERT_TRUE(below.state_is_offloaded()) << optimizer;
      ASSERT_FALSE(above.state_is_offloaded()) << optimizer;
      for (int step = 0; step < 3; step++) {
        const StepResult first = above.step(), second = below.step();
        EXPECT_EQ(first.loss, second.loss);
        expect_same_bits(above, below, concat(" ", optimizer, " ", setting.golden, ", step ", step));
      }
    }
  }
}

TEST_F(Offloaded, AnotherOptimizersStateGivesTheSameBits) {
  OffloadBench above({.golden = "qwen2", .optimizer = "momentum_sgd"}, false),
      below({.golden = "qwen2", .optimizer = "momentum_sgd"}, true);
  ASSERT_TRUE(below.state_is_offloaded());
  for (int step = 0; step < 3; step++) {
    above.step();
    below.step();
    expect_same_bits(above, below);
  }
}

TEST_F(Offloaded, StateIsNotInTheDevicesMemory) {
  install_host_allocator();
  const OffloadSetting setting{"llama", at::kBFloat16, true};
  const int64_t before = host_memory().in_use, offloaded = offload_use().in_use;
  const OffloadBench above(setting, false);
  const int64_t between = host_memory().in_use;
  EXPECT_EQ(offload_use().in_use, offloaded);
  const OffloadBench below(setting, true);
  const int64_t state = offload_use().in_use - offloaded;
  EXPECT_GE(state, above.trainer->optimizer_state().tensors.size());
  EXPECT_EQ((between - before) - (host_memory().in_use - between), state);
}

TEST_F(Offloaded, EveryAllocationThatFailsLeavesTheSameBits) {
  const OffloadSetting setting{"qwen2_lora"};
  OffloadBench wanting(setting, true), ample(setting, false);
  test::expect_same_bits_whichever_allocation_fails(wanting, ample);
}

TEST_F(Offloaded, ARehearsalChangesNothing) {
  const OffloadSetting setting{"t5_v1_1", at::kBFloat16, true};
  OffloadBench rehearses(setting, true), does_not(setting, false);
  for (int step = 0; step < 2; step++) {
    rehearses.trainer->rehearse(rehearses.golden.batch);
    rehearses.step();
    does_not.step();
    expect_same_bits(rehearses, does_not);
  }
}

TEST_F(Offloaded, AMoveToAnotherDeviceKeepsTheStateBelow) {
  const OffloadSetting setting{"llama", at::kBFloat16, true};
  OffloadBench stays(setting, false), moves(setting, true);
  for (OffloadBench* bench : {&stays, &moves}) bench->step();
  moves.trainer->move_to(at::kCPU);
  EXPECT_TRUE(moves.state_is_offloaded());
  for (OffloadBench* bench : {&stays, &moves}) bench->step();
  expect_same_bits(stays, moves);
}

TEST_F(Offloaded, AResumedRunMaySwitchItOnOrOff) {
  for (const bool begins_below : {false, true}) {
    const OffloadSetting setting{"t5_v1_1", at::kBFloat16, true};
    OffloadBench whole(setting, false), first(setting, begins_below), second(setting, !begins_below);
    for (int step = 0; step < 4; step++) whole.step();
    for (int step = 0; step < 2; step++) first.step();
    OptimizerSnapshot saved = first.trainer->optimizer_state();
    for (size_t i = 0; i < first.trainer->parameters().size(); i++) {
      const at::NoGradGuard no_grad;
      second.trainer->parameters()[i].value.detach().copy_(first.trainer->parameters()[i].value);
    }
    second.trainer->restore_optimizer(std::move(saved), "the test");
    second.trainer->set_steps_taken(2);
    for (int step = 0; step < 2; step++) second.step();
    expect_same_bits(whole, second, begins_below ? ", switched off" : ", switched on");
  }
}

nlohmann::json small_llama() {
  return {{"model_type", "llama"},    {"vocab_size", 3000},     {"hidden_size", 256},
          {"intermediate_size", 640}, {"num_hidden_layers", 4}, {"num_attention_heads", 8},
          {"num_key_value_heads", 2}, {"hidden_act", "silu"},   {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-6},     {"rope_theta", 10000.0},  {"tie_word_embeddings", false}};
}

class OffloadPlan : public ::testing::Test {
 protected:
  OffloadPlan() {
    std::ofstream(directory_.path() / "config.json") << small_llama().dump();
    target_.dtype = at::kBFloat16;
    config_.data.max_length = 32;
    config_.training.batch_size = 1;
    config_.training.effective_batch_size = 1;
  }
  MemoryPlan plan(const Config& config) const { return plan_memory(config, directory_.path(), target_); }

  TemporaryDirectory directory_;
  PlanTarget target_;
  Config config_;
};

TEST_F(OffloadPlan, HasTheStateBelowAndNotInThePeak) {
  for (const c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    target_.device = device;
    Config below = config_;
    below.memory.offload.optimizer = true;
    const MemoryPlan kept = plan(config_), offloaded = plan(below);
    EXPECT_EQ(kept.offloaded.total(), 0);
    const int64_t state = offloaded.offloaded.optimizer_state;
    EXPECT_GT(state, 4'000'000);
    // All sizes are multiples of 512 bytes, as a GPU's blocks are. What is left is one number of the trainer.
    EXPECT_EQ(kept.optimizer_state - offloaded.optimizer_state, state);
    EXPECT_LE(offloaded.optimizer_state, 512);
    EXPECT_EQ(kept.peak() - offloaded.peak(), state);
    EXPECT_EQ(offloaded.offloaded.total(), state);
    EXPECT_EQ(offloaded.offloaded.moved, 2 * state) << "read and written";
    EXPECT_GT(offloaded.offloaded.seconds, 0);
  }
}

TEST_F(OffloadPlan, MovesWeightsForEachMicroBatchAndTheStateOnce) {
  Config config = config_;
  config.memory.offload.optimizer = config.memory.offload.weights = true;
  config.training.batch_size = 1;
  config.training.effective_batch_size = 2;
  const OffloadedPlan two = plan(config).offloaded;
  config.training.effective_batch_size = 16;
  const OffloadedPlan sixteen = plan(config).offloaded;
  EXPECT_EQ(sixteen.total(), two.total());
  const int64_t state = 2 * two.optimizer_state;
  EXPECT_GT(two.moved - state, 2 * two.weights);
  EXPECT_EQ(sixteen.moved - state, 8 * (two.moved - state));
}

// A plan for packed samples on a GPU has a third micro-batch, of short samples; a step has as many as before.
TEST_F(OffloadPlan, MovesAsMuchForPackedSamplesAsAGpuPlans) {
  target_.device = c10::kCUDA;
  config_.memory.offload.weights = true;
  config_.training.batch_size = 2;
  config_.training.effective_batch_size = 16;
  const auto moved = [&](bool packing) {
    config_.data.packing = packing;
    return static_cast<double>(plan(config_).offloaded.moved);
  };
  EXPECT_NEAR(moved(true) / moved(false), 1, 0.1);
}

// On a GPU two buffers for the largest block stay.
TEST_F(OffloadPlan, HasWeightsInNf4BelowToo) {
  config_.lora.emplace();
  config_.model.quantize = "nf4";
  for (const c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    target_.device = device;
    Config below = config_;
    below.memory.offload.weights = true;
    const MemoryPlan kept = plan(config_), offloaded = plan(below);
    EXPECT_GT(offloaded.offloaded.weights, 0);
    EXPECT_EQ(offloaded.offloaded.total(), offloaded.offloaded.weights);
    // Forward and backward. On a GPU the last two blocks are still in the buffers when backward begins.
    const int64_t once = offloaded.offloaded.weights;
    EXPECT_GE(offloaded.offloaded.moved, device == c10::kCPU ? 2 * once : once + 1);
    const int64_t saved = kept.weights - offloaded.weights;
    EXPECT_GT(saved, 0);
    EXPECT_LE(saved, offloaded.offloaded.weights);
    if (device == c10::kCPU) {
      EXPECT_EQ(saved, offloaded.offloaded.weights);
    }
  }
}

TEST_F(OffloadPlan, AutoOffloadsOnlyWhatDoesNotFitOtherwise) {
  Config config = config_;
  config.memory.offload.automatic = true;
  config.memory.gradient_checkpointing = Recompute::automatic();
  const MemoryPlan kept = plan(config_);
  Planner planner(config, directory_.path(), target_);
  const auto ample = planner.cheapest(kept.total(), /*whatever=*/false);
  ASSERT_TRUE(ample);
  EXPECT_EQ(ample->plan.offload, Offload{});
  // Recompute is tried first.
  const auto least_with = [&](const Offload& offload) {
    return std::min(planner.choice(1, 0, offload).plan.total(),
                    planner.choice(1, kept.num_blocks, offload).plan.total());
  };
  const int64_t above = least_with({});
  EXPECT_EQ(planner.cheapest(above, false)->plan.offload, Offload{});
  const auto tight = planner.cheapest(above - 1, false);
  ASSERT_TRUE(tight);
  EXPECT_EQ(tight->plan.offload, Offload{.optimizer = true});
  EXPECT_LT(tight->plan.total(), above);
  EXPECT_TRUE(planner.with(*tight).memory.offload.optimizer);
  EXPECT_FALSE(planner.with(*tight).memory.offload.automatic);
  const Offload all{.optimizer = true, .weights = true, .activations = true};
  const int64_t least = least_with(all);
  const auto tightest = planner.cheapest(least, false);
  ASSERT_TRUE(tightest);
  EXPECT_EQ(tightest->plan.offload, all);
  EXPECT_FALSE(planner.cheapest(least - 1, false));
}

TEST_F(OffloadPlan, TheTableHasWhatLiesBelowAndWhatMoves) {
  config_.memory.offload.optimizer = true;
  const std::string table = plan_table(plan(config_), 0);
  const size_t below = table.find("offloaded, not part of the total:");
  ASSERT_NE(below, std::string::npos) << table;
  EXPECT_NE(table.find("optimizer state", below), std::string::npos) << table;
  EXPECT_NE(table.find("moved in a step", below), std::string::npos) << table;
}

}  // namespace
}  // namespace trainer
