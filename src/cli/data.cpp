// trainer data --config FILE [key=value ...]
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/load.h"

#include "cli/commands.h"
#include "cli/open_core.h"

namespace trainer::cli {

void add_data_command(CLI::App& app) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "data", "What the data of a run are like: lengths, what is cut, repeated or unknown, samples");
  command->add_option("-c,--config", options->config, "Configuration of the run (YAML)")->type_name("FILE");
  command->add_option("overrides", options->overrides, "Keys of the configuration, on top of the file")
      ->type_name("key=value");
  command->add_flag("--json", options->json, "One JSON object; its keys are in docs/data.md");
  command->footer(
      "Reads all of the data, and of the model its config.json and its tokenizer. Exit code 3: the data\n"
      "cannot be used, or a share is above data.max_truncated, max_unknown or max_malformed.");
  command->callback([options] {
    const Config config = load_training_config(options->config, options->overrides);
    open_core(config.training.num_threads).data({config, options->json});
  });
}

}  // namespace trainer::cli
