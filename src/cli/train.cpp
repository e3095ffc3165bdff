// trainer train --config FILE [key=value ...]
#include <csignal>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/base/log.h"
#include "trainer/base/rank_place.h"
#include "trainer/base/stop_signals.h"
#include "trainer/config/load.h"

#include "cli/choose_processes.h"
#include "cli/commands.h"
#include "cli/count_gpus.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "cli/start_ranks.h"

namespace trainer::cli {

void add_train_command(CLI::App& app) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    ProcessOptions processes;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "train", "Fine-tune a model (the word train may be left out: trainer --config FILE)");
  command->add_option("-c,--config", options->config, "Configuration (YAML)")->type_name("FILE");
  command->add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command
      ->add_option("--gpus", options->processes.gpus,
                   "GPUs of this machine to train on, a process for each (parallel.gpus)")
      ->type_name("N|all");
  command
      ->add_option("--ranks", options->processes.ranks,
                   "Processes on this machine that train together on the CPU (device=cpu)")
      ->type_name("N");
  command->footer([] {
    std::ostringstream keys;
    keys << "Configuration keys and their defaults (docs/config.md has more):\n\n";
    write_key_summary(keys);
    return keys.str();
  });
  command->callback([options] {
    const RankPlace place = rank_place();
    log::speak_as_rank(place.rank);
    Config config = load_training_config(options->config, options->overrides,
                                         [](Config& names) { resolve_names(names, {.goes_on = true}); });
    const int64_t processes = choose_processes(options->processes, place, config);
    // Who reads the messages may go away (`| head`); the run stays.
    std::signal(SIGPIPE, SIG_IGN);
    if (processes > 1) {
      const std::string gpus = config.device == "cpu" ? "" : freest_gpus(processes);
      return start_ranks({processes, config.training.num_threads == 0, gpus, config.parallel.timeout});
    }
    const StopSignals signals;  // until the library has its own
    open_core(config.training.num_threads, config.memory).train(config);
  });
}

}  // namespace trainer::cli
