// trainer train --config FILE [key=value ...]
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/stop_signals.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"

namespace trainer::cli {

namespace {

// torchrun, accelerate and the like start one process for each GPU.
void refuse_several_processes() {
  const char* world = std::getenv("WORLD_SIZE");
  const char* rank = std::getenv("RANK");
  if (world == nullptr || rank == nullptr || std::atoi(world) <= 1) return;
  throw ConfigError(concat("WORLD_SIZE is ", world,
                           ", as set by torchrun: a run uses one device, so start trainer "
                           "by itself, once (or unset WORLD_SIZE)"));
}

}  // namespace

void add_train_command(CLI::App& app) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "train", "Fine-tune a model (the word train may be left out: trainer --config FILE)");
  command->add_option("-c,--config", options->config, "Configuration (YAML)")->type_name("FILE");
  command->add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command->footer([] {
    std::ostringstream keys;
    keys << "Configuration keys and their defaults (docs/config.md has more):\n\n";
    write_key_summary(keys);
    return keys.str();
  });
  command->callback([options] {
    refuse_several_processes();
    const Config config = load_training_config(
        options->config, options->overrides, [](Config& names) { resolve_names(names, {.goes_on = true}); });
    // Who reads the messages may go away (`| head`); the run stays.
    std::signal(SIGPIPE, SIG_IGN);
    const StopSignals signals;  // until the library has its own
    open_core(config.training.num_threads, config.memory).train(config);
  });
}

}  // namespace trainer::cli
