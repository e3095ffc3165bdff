// trainer doctor [--config FILE] [--gpus] [key=value ...]
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/config/load.h"

#include "base/switches.h"
#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "net/address.h"

namespace trainer::cli {
namespace {

// Environment variables that change how a run computes, or where, besides the program's switches.
constexpr const char* kVariables[] = {"CUDA_VISIBLE_DEVICES",
                                      "CUDA_DEVICE_ORDER",
                                      "CUDA_LAUNCH_BLOCKING",
                                      "CUBLAS_WORKSPACE_CONFIG",
                                      "PYTORCH_ALLOC_CONF",
                                      "PYTORCH_CUDA_ALLOC_CONF",
                                      "PYTORCH_NO_CUDA_MEMORY_CACHING",
                                      "TRAINER_GPU_LOCKS",
                                      "OMP_NUM_THREADS",
                                      "OMP_WAIT_POLICY",
                                      "OMP_PROC_BIND",
                                      "OMP_PLACES",
                                      "OMP_THREAD_LIMIT",
                                      "OMP_DYNAMIC",
                                      "GOMP_SPINCOUNT",
                                      "GOMP_CPU_AFFINITY",
                                      "MKL_NUM_THREADS",
                                      "ATEN_CPU_CAPABILITY",
                                      "ONEDNN_MAX_CPU_ISA",
                                      "LD_PRELOAD",
                                      "HF_HOME",
                                      "HF_HUB_CACHE",
                                      "HF_ENDPOINT",
                                      "HF_HUB_OFFLINE"};

// Before run_in_library(), which sets some of them itself.
std::vector<std::pair<std::string, std::string>> set_variables() {
  std::vector<std::pair<std::string, std::string>> found;
  const auto add = [&](const char* name) {
    if (const char* value = std::getenv(name)) found.emplace_back(name, net::without_credentials(value));
  };
  for (const char* name : kVariables) add(name);
  for (const SwitchValues& one : all_switches()) add(one.name);
  return found;
}

}  // namespace

void add_doctor(CLI::App& command) {
  struct Given {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    bool json = false, gpus = false;
  };
  auto given = std::make_shared<Given>();
  command.add_option("-c,--config", given->config, "Configuration of the run (YAML)")->type_name("FILE");
  command.add_option("overrides", given->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command.add_flag("--json", given->json, "Print one JSON object");
  command.add_flag("--gpus", given->gpus,
                   "Also show how the GPUs reach each other, measure copies between them, and estimate what "
                   "that means for the run");
  command.callback([given] {
    DoctorOptions options;
    options.json = given->json;
    options.gpus = given->gpus;
    options.environment = set_variables();
    Config config;
    try {
      if (given->config || !given->overrides.empty()) {
        config = load_config(given->config, given->overrides);
        resolve_names(config, {.downloads = false});
        options.config = config;
      }
    } catch (const ConfigError& error) {
      options.problem = error.what();
      options.problem_code = error.code();
    }
    run_in_library(std::move(options), config.training.num_threads, config.memory);
  });
}

}  // namespace trainer::cli
