// An optimizer that is not part of the program works in the step, the memory plan and a move, as AdamW does;
// so does each of the others. tests/run/run_state_test.cpp tests it with a checkpoint.
#include <set>

#include <gtest/gtest.h>

#include "trainer/base/log.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/training/plan.h"
#include "trainer/training/trainer.h"

#include "models/golden.h"
#include "optim/all_in_codes.h"
#include "optim/momentum_sgd.h"

namespace trainer {
namespace {

using test::make_momentum_sgd;

struct SeamBench {
  explicit SeamBench(const OptimizerFactory& optimizer = make_momentum_sgd,
                     const std::string& name = "qwen2_lora", at::ScalarType dtype = at::kFloat)
      : golden(name, dtype) {
    config.optimizer.learning_rate = 1e-2;
    config.optimizer.lr_scheduler_type = SchedulerType::constant;
    config.training.max_grad_norm = 0.5;
    config.training.batch_size = 2;
    config.recovery.grow_after = 0;
    trainer.emplace(config, *golden.model, at::kCPU, 10, optimizer);
  }
  StepResult step(const StepCuts* replay = nullptr) { return trainer->step(golden.batch, replay); }
  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> out;
    for (const TrainedParameter& parameter : trainer->parameters())
      out[parameter.name] = parameter.value.detach().clone();
    return out;
  }

  Golden golden;
  Config config;
  std::optional<Trainer> trainer;
};

void expect_same_bits(const SeamBench& a, const SeamBench& b, const std::string& where = "") {
  const auto second = b.weights();
  for (const auto& [name, tensor] : a.weights()) ASSERT_TRUE(tensor.equal(second.at(name))) << name << where;
}

TEST(SecondOptimizer, UpdatesTheWeightsWithTheClippedGradient) {
  SeamBench bench;
  bench.golden.model->set_dropout(0);
  const auto before = bench.weights();
  const auto gradients = bench.golden.gradients(bench.golden.one_cut(), ForwardContext{});
  bench.trainer->step(bench.golden.batch);  // clears the gradients made above before its own
  const auto after = bench.weights();
  double squares = 0;
  for (const auto& [name, gradient] : gradients) squares += gradient.square().sum().item<double>();
  ASSERT_GT(std::sqrt(squares), 0.5) << "is clipped";
  for (const auto& [name, gradient] : gradients) {
    const at::Tensor expected = before.at(name) - gradient * (1e-2 * 0.5 / std::sqrt(squares));
    EXPECT_LE(relative_error(after.at(name), expected), 1e-5) << name;
  }
  EXPECT_EQ(bench.trainer->optimizer_state().steps_taken, 1);
}

class SeveralOptimizers : public ::testing::TestWithParam<OptimizerFactory> {};
INSTANTIATE_TEST_SUITE_P(All, SeveralOptimizers, ::testing::Values(make_momentum_sgd, test::make_adamw_8bit));

TEST_P(SeveralOptimizers, LeaveTheSameBitsAfterEveryAllocationThatFails) {
  install_host_allocator();
  log::set_level(log::Level::error);
  SeamBench wanting(GetParam()), ample(GetParam());
  std::set<std::string> stages;
  wanting.trainer->on_recovery([&](const Recovery& recovery) { stages.insert(recovery.stage); });
  int64_t n = 1;
  for (bool failed = true; failed && !HasFatalFailure(); n++) {
    wanting.trainer->budgets() = {};
    fail_host_allocation(n);
    const StepResult result = wanting.step();
    fail_host_allocation(0);
    const StepCuts cuts{result.cuts, result.recomputed_blocks, result.packed_budget};
    ample.step(&cuts);
    expect_same_bits(wanting, ample, ", allocation " + std::to_string(n));
    failed = result.retries > 0;
  }
  log::set_level(log::Level::info);
  EXPECT_GT(n, 100) << "allocations of a step";
  EXPECT_TRUE(stages.contains("optimizer"));
}

TEST_P(SeveralOptimizers, ChangeNothingInARehearsal) {
  SeamBench rehearses(GetParam()), does_not(GetParam());
  for (int step = 0; step < 2; step++) {
    rehearses.trainer->rehearse(rehearses.golden.batch);
    rehearses.step();
    does_not.step();
    expect_same_bits(rehearses, does_not);
  }
}

TEST_P(SeveralOptimizers, ContinueOnAnotherDeviceAsIfTheyHadBeenThereFromTheStart) {
  SeamBench stays(GetParam()), moves(GetParam());
  for (SeamBench* bench : {&stays, &moves}) bench->step();
  const OptimizerTensors before = moves.trainer->optimizer_state().tensors;
  moves.trainer->move_to(at::kCPU);
  for (const auto& [parameter, kept] : moves.trainer->optimizer_state().tensors) {
    for (const auto& [what, tensor] : kept)
      EXPECT_NE(tensor.const_data_ptr(), before.at(parameter).at(what).const_data_ptr())
          << parameter << "." << what;
  }
  for (SeamBench* bench : {&stays, &moves}) bench->step();
  expect_same_bits(stays, moves);
}

TEST(SecondOptimizer, ThePlanCountsItsStateInPlaceOfAdamWs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const SeamBench bench(make_momentum_sgd, "qwen2", dtype);
    int64_t sgd = 0, adamw = 0, codes = 0;
    for (const TrainedParameter& parameter : bench.trainer->parameters()) {
      sgd += charged_bytes(parameter.value.numel() * 4) + charged_bytes(8);
      adamw += 2 * charged_bytes(static_cast<int64_t>(parameter.value.nbytes()));
      const int64_t count = parameter.value.numel();
      codes += parameter.embedding
                   ? 2 * charged_bytes(count * 4)
                   : 2 * charged_bytes(count) + 2 * charged_bytes(adamw_8bit_blocks(count) * 4);
    }
    PlanTarget target;
    target.dtype = dtype;
    const std::filesystem::path model = bench.golden.directory / "model";
    const MemoryPlan with_adamw = plan_memory(bench.config, model, target),
                     with_sgd = plan_memory(bench.config, model, target, make_momentum_sgd),
                     in_codes = plan_memory(bench.config, model, target, test::make_adamw_8bit);
    EXPECT_EQ(with_sgd.optimizer_state - with_adamw.optimizer_state, sgd - adamw) << toString(dtype);
    EXPECT_EQ(in_codes.optimizer_state - with_adamw.optimizer_state, codes - adamw) << toString(dtype);
  }
}

}  // namespace
}  // namespace trainer
