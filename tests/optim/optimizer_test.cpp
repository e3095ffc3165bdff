// What all optimizers have in common: each is made by its name, and refuses the state of another.
#include "trainer/optim/optimizer.h"

#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/optim/adafactor.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/adamw_8bit.h"

#include "optim/all_in_codes.h"
#include "optim/momentum_sgd.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

std::vector<TrainedParameter> two_parameters(at::ScalarType type = at::kFloat) {
  return {{"q.weight", at::ones({3, 4}, type), true}, {"q.bias", at::ones({4}, type), false}};
}

OptimizerSnapshot copy_of(const Optimizer& optimizer) {
  OptimizerSnapshot copy = optimizer.snapshot();
  for (auto& [parameter, kept] : copy.tensors) {
    for (auto& [what, tensor] : kept) tensor = tensor.clone();
  }
  return copy;
}

TEST(MakeOptimizer, MakesEachThatTheConfigurationAllows) {
  std::ifstream in(std::string(SOURCE_DIR) + "/configs/schema.json");
  const nlohmann::json names =
      nlohmann::json::parse(in).at("/properties/optimizer/properties/name/enum"_json_pointer);
  ASSERT_FALSE(names.empty());
  for (const std::string name : names) {
    OptimizerConfig config;
    config.name = name;
    EXPECT_EQ(make_optimizer(two_parameters(), config, 0)->name(), name);
  }
}

TEST(MakeOptimizer, NamesThoseThatThereAreWhereThereIsNone) {
  OptimizerConfig config;
  config.name = "adamv";
  const std::string message =
      error_message<ConfigError>([&] { make_optimizer(two_parameters(), config, 0); });
  EXPECT_TRUE(contains(message, "optimizer.name: there is no optimizer 'adamv'")) << message;
  EXPECT_TRUE(contains(message, "adamw")) << message;
}

TEST(Optimizer, StateIsCountedInBytes) {
  OptimizerConfig config;
  config.master_weights = true;
  EXPECT_EQ(AdamW(two_parameters(), config, 0).state_bytes(), 16 * (4 + 4));
  EXPECT_EQ(AdamW(two_parameters(at::kBFloat16), config, 0).state_bytes(), 16 * (4 + 4 + 4));
  EXPECT_EQ(Adafactor(two_parameters(at::kBFloat16), {}, 0).state_bytes(), (3 + 4 + 4) * 4);
  EXPECT_EQ(AdamW8bit(two_parameters(at::kBFloat16), config, 0, 12).state_bytes(),
            12 * (1 + 1 + 4) + 4 + 4 + 4 * (4 + 4 + 4));
  EXPECT_EQ(test::MomentumSgd(two_parameters(at::kBFloat16), config, 0).state_bytes(), 16 * 4 + 2 * 8);
}

TEST(Optimizer, AStateThatFitsIsRestored) {
  AdamW optimizer(two_parameters(), {}, 0);
  OptimizerSnapshot saved = copy_of(optimizer);
  saved.steps_taken = 7;
  for (auto& [parameter, kept] : saved.tensors) {
    for (auto& [what, tensor] : kept) tensor.normal_();
  }
  optimizer.restore(saved, "here");
  EXPECT_EQ(optimizer.steps_taken(), 7);
  const OptimizerTensors tensors = optimizer.tensors();
  for (const auto& [parameter, kept] : saved.tensors) {
    for (const auto& [what, tensor] : kept)
      EXPECT_TRUE(tensor.equal(tensors.at(parameter).at(what))) << parameter << "." << what;
  }
}

TEST(Optimizer, AStateThatDoesNotFitIsRefusedWithEachTensorAndChangesNothing) {
  AdamW optimizer(two_parameters(), {}, 0);
  OptimizerSnapshot saved = copy_of(optimizer);
  saved.steps_taken = 7;
  saved.tensors["q.weight"]["exp_avg"] = at::ones({3, 5});
  saved.tensors["q.weight"]["exp_avg_sq"] = at::ones({3, 4}, at::kBFloat16);
  saved.tensors["q.bias"]["exp_avg"].fill_(1);
  saved.tensors["q.bias"].erase("exp_avg_sq");
  saved.tensors["q.bias"]["master"] = at::ones({4});
  const std::string message =
      error_message<FormatError>([&] { optimizer.restore(saved, "c/optimizer.safetensors"); });
  for (const char* line : {"c/optimizer.safetensors: does not match",
                           "misshapen: q.weight.exp_avg: expected [3, 4], found [3, 5]",
                           "of another type: q.weight.exp_avg_sq: expected Float, found BFloat16",
                           "missing: q.bias.exp_avg_sq [4]", "unexpected: q.bias.master [4]"}) {
    EXPECT_TRUE(contains(message, line)) << message;
  }
  EXPECT_EQ(optimizer.steps_taken(), 0);
  for (const auto& [parameter, kept] : optimizer.tensors()) {
    for (const auto& [what, tensor] : kept)
      EXPECT_TRUE(tensor.eq(0).all().item<bool>()) << parameter << "." << what;
  }
}

TEST(Optimizer, TheStateOfAnotherOneIsRefusedWithBothNames) {
  AdamW optimizer(two_parameters(), {}, 0);
  const test::MomentumSgd other(two_parameters(), {}, 0);
  const std::string message = error_message<FormatError>([&] { optimizer.restore(copy_of(other), "file"); });
  EXPECT_TRUE(contains(message, "file: ")) << message;
  EXPECT_TRUE(contains(message, "'momentum_sgd'")) << message;
  EXPECT_TRUE(contains(message, "'adamw'")) << message;
  EXPECT_TRUE(contains(message, "resume with optimizer.name=momentum_sgd")) << message;
}

// One with gradients that are no contiguous block, so that the update allocates on the CPU, too.
struct Rehearsed {
  explicit Rehearsed(const std::string& name)
      : parameters(two_parameters()), gradients(parameters, StateDtype::automatic) {
    for (TrainedParameter& parameter : parameters)
      parameter.value.mutable_grad() = at::ones(parameter.value.sizes());
    parameters[0].value.mutable_grad() = at::arange(12, at::kFloat).view({4, 3}).t();
    OptimizerConfig config;
    config.name = name;
    optimizer = name == "adamw_8bit" ? test::make_adamw_8bit(parameters, config, 0)
                                     : make_optimizer(parameters, config, 0);
  }
  void rehearse() { optimizer->rehearse(gradients, norm, 1.0); }
  void step() { optimizer->step(gradients, norm, 1.0, 1e-2); }

  std::vector<TrainedParameter> parameters;
  Gradients gradients;
  at::Tensor norm = at::full({}, 2.0f);
  std::unique_ptr<Optimizer> optimizer;
};

class EachOptimizer : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, EachOptimizer, testing::Values("adamw", "adamw_8bit", "adafactor"),
                         [](const auto& param) { return param.param; });

TEST_P(EachOptimizer, ChangesNothingInARehearsalThatRanOutOfMemory) {
  install_host_allocator();
  Rehearsed expected(GetParam());
  expected.step();
  int64_t failed = 0;
  for (bool fails = true; fails;) {
    Rehearsed rehearsed(GetParam());
    fails = false;
    fail_host_allocation(failed + 1);
    try {
      rehearsed.rehearse();
    } catch (const c10::OutOfMemoryError&) {
      fails = true;
      failed++;
    }
    fail_host_allocation(0);
    EXPECT_FALSE(rehearsed.optimizer->half_written());
    rehearsed.step();
    for (size_t i = 0; i < expected.parameters.size(); i++) {
      EXPECT_TRUE(rehearsed.parameters[i].value.equal(expected.parameters[i].value))
          << expected.parameters[i].name << ", allocation " << failed;
    }
  }
  EXPECT_GT(failed, 2);
}

}  // namespace
}  // namespace trainer
