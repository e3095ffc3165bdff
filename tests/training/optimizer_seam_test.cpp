// Other optimizers than AdamW, and one that is not part of the program, work in the step, the memory plan and
// a move, as AdamW does. tests/run/run_state_test.cpp tests them with a checkpoint.
#include <gtest/gtest.h>

#include "trainer/memory/host_allocator.h"
#include "trainer/training/plan.h"
#include "trainer/training/trainer.h"

#include "models/golden.h"
#include "optim/all_in_codes.h"
#include "optim/momentum_sgd.h"
#include "training/failing_allocations.h"

namespace trainer {
namespace {

using test::make_momentum_sgd;

// The optimizer of that name; momentum_sgd is known to the tests alone.
OptimizerFactory factory_of(const std::string& optimizer) {
  if (optimizer == "momentum_sgd") return make_momentum_sgd;
  return optimizer == "adamw_8bit" ? OptimizerFactory(test::make_adamw_8bit) : make_optimizer;
}

struct SeamBench {
  explicit SeamBench(const std::string& optimizer, const std::string& name = "qwen2_lora",
                     at::ScalarType dtype = at::kFloat)
      : golden(name, dtype) {
    config.optimizer.name = optimizer;
    config.optimizer.beta1 = 0.9;
    config.optimizer.scale_parameter = true;
    config.optimizer.learning_rate = 1e-2;
    config.optimizer.lr_scheduler_type = SchedulerType::constant;
    config.training.max_grad_norm = 0.5;
    config.training.batch_size = 2;
    config.recovery.grow_after = 0;
    trainer.emplace(config, *golden.model, at::kCPU, 10, factory_of(optimizer));
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
  SeamBench bench("momentum_sgd");
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

class EachOptimizer : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, EachOptimizer,
                         testing::Values("momentum_sgd", "adamw_8bit", "adafactor"),
                         [](const auto& param) { return param.param; });

TEST_P(EachOptimizer, LeavesTheSameBitsWhicheverAllocationFails) {
  SeamBench wanting(GetParam()), ample(GetParam());
  test::expect_same_bits_whichever_allocation_fails(wanting, ample);
}

TEST_P(EachOptimizer, ChangesNothingInARehearsal) {
  SeamBench rehearses(GetParam()), does_not(GetParam());
  for (int step = 0; step < 2; step++) {
    rehearses.trainer->rehearse(rehearses.golden.batch);
    rehearses.step();
    does_not.step();
    expect_same_bits(rehearses, does_not);
  }
}

TEST_P(EachOptimizer, ContinuesOnAnotherDeviceAsIfItHadBeenThereFromTheStart) {
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

int64_t charged_bytes_of(const OptimizerTensors& state) {
  int64_t bytes = 0;
  for (const auto& [parameter, kept] : state) {
    for (const auto& [what, tensor] : kept) bytes += charged_bytes(static_cast<int64_t>(tensor.nbytes()));
  }
  return bytes;
}

TEST_P(EachOptimizer, HasItsStateInThePlanInPlaceOfAdamWs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const SeamBench bench(GetParam(), "qwen2", dtype), adamw("adamw", "qwen2", dtype);
    PlanTarget target;
    target.dtype = dtype;
    const std::filesystem::path model = bench.golden.directory / "model";
    const MemoryPlan with_adamw = plan_memory(adamw.config, model, target),
                     with_other = plan_memory(bench.config, model, target, factory_of(GetParam()));
    EXPECT_EQ(with_other.optimizer_state - with_adamw.optimizer_state,
              charged_bytes_of(bench.trainer->optimizer_state().tensors) -
                  charged_bytes_of(adamw.trainer->optimizer_state().tensors))
        << toString(dtype);
  }
}

}  // namespace
}  // namespace trainer
