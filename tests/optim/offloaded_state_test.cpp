// An update of state that lies in a file takes little memory, however large the state is.
#include <fstream>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/optim/adamw.h"

#include "memory/offload.h"
#include "optim/state_memory.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::TemporaryDirectory;

// "VmRSS" or "VmHWM" (its peak) of this process, in bytes.
int64_t memory_of_process(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    int64_t kilobytes = 0;
    if (word == name + ":" && in >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

void reset_peak_of_process() { std::ofstream("/proc/self/clear_refs") << 5; }

TEST(OffloadedState, IsInMemoryOnlyPieceByPiece) {
  TemporaryDirectory directory;
  set_offload_directory(directory.path());
  const int64_t elements = 24 << 20, state = 2 * 4 * elements;  // 200 MB of state
  const std::vector<TrainedParameter> parameters{{"w", at::ones({elements / 1024, 1024}), true}};
  parameters[0].value.set_requires_grad(true);
  const Gradients gradients(parameters, StateDtype::automatic);
  parameters[0].value.mutable_grad() = at::full_like(parameters[0].value, 0.5);
  std::optional<AdamW> optimizer;
  {
    const StateBelow below(true);
    optimizer.emplace(parameters, OptimizerConfig{}, 0);
  }
  const at::Tensor norm = gradients.norm();
  reset_peak_of_process();
  const int64_t before = memory_of_process("VmRSS");
  for (int step = 0; step < 2; step++) optimizer->step(gradients, norm, 1.0, 1e-2);
  EXPECT_LT(memory_of_process("VmHWM") - before, state / 3);
  EXPECT_LT(memory_of_process("VmRSS") - before, state / 10);
  const at::Tensor exp_avg = optimizer->tensors().at("w").at("exp_avg");
  EXPECT_TRUE(is_offloaded(exp_avg));
  EXPECT_GT(exp_avg.min().item<float>(), 0) << "every element was updated";
}

TEST(OffloadedState, ARestoreLeavesItInTheFile) {
  TemporaryDirectory directory;
  set_offload_directory(directory.path());
  const int64_t elements = 16 << 20, state = 2 * 4 * elements;
  const std::vector<TrainedParameter> parameters{{"w", at::ones({elements}), true}};
  const StateBelow below(true);
  AdamW saved(parameters, {}, 0), restored(parameters, {}, 0);
  const OptimizerTensors state_of_saved = saved.tensors();
  const auto release_saved = [&] {
    for (const auto& [what, tensor] : state_of_saved.at("w")) release_offloaded(tensor);
  };
  state_of_saved.at("w").at("exp_avg").fill_(3);
  release_saved();
  const int64_t before = memory_of_process("VmRSS");
  restored.restore(saved.snapshot(), "the test");
  release_saved();
  EXPECT_LT(memory_of_process("VmRSS") - before, state / 10);
  EXPECT_TRUE(restored.tensors().at("w").at("exp_avg").eq(3).all().item<bool>());
}

}  // namespace
}  // namespace trainer
