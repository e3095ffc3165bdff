// A run inside another process, for tests/gpu_check/gpu_check: Python's profiler of LibTorch then sees its
// kernels. Throws nothing: messages go to stderr.
#include <exception>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/config/load.h"
#include "trainer/run/train.h"
#include "trainer/training/plan.h"

#include "support/launch_counter.h"

namespace trainer {
namespace {

template <class Work>
int exit_code_of(const Work& work) {
  try {
    work();
    return static_cast<int>(ExitCode::done);
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

Config config_of(int count, const char* const* overrides) {
  return load_training_config({}, {overrides, overrides + count});
}

// What the operators of one step on the largest micro-batches read and write, by the memory plan's step.
nlohmann::json operators_of_a_step(const Config& config) {
  PlanTarget target;
  target.device = config.device == "cpu" ? c10::kCPU : c10::kCUDA;
  target.dtype = config.model.dtype == ModelDtype::bf16 ? at::kBFloat16 : at::kFloat;
  LaunchCounter counter;
  plan_memory(config, config.model.path, target);
  const StepLaunches step = counter.take();
  LaunchCounts both = step.forward;
  both += step.backward;
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [name, of_it] : both.operators)
    rows.push_back(
        {{"operator", name}, {"kernels", of_it.kernels}, {"calls", of_it.calls}, {"bytes", of_it.bytes}});
  return rows;
}

}  // namespace
}  // namespace trainer

extern "C" int train_in_process(int count, const char* const* overrides) {
  return trainer::exit_code_of([&] { trainer::train(trainer::config_of(count, overrides)); });
}

// Returns JSON for one step of such a run: [{operator, kernels, calls, bytes}]. Empty where the plan fails.
extern "C" const char* count_operators(int count, const char* const* overrides) {
  static std::string text;
  text = "[]";
  trainer::exit_code_of(
      [&] { text = trainer::operators_of_a_step(trainer::config_of(count, overrides)).dump(); });
  return text.c_str();
}
