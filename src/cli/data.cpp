// trainer data --config FILE [key=value ...]
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/load.h"

#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"

namespace trainer::cli {

void add_data(CLI::App& command) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  command.add_option("-c,--config", options->config, "Configuration of the run (YAML)")->type_name("FILE");
  command.add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command.add_flag("--json", options->json, "Print one JSON object; docs/data-report.md describes its keys");
  command.footer(
      "Reads all of the data, but only config.json and the tokenizer of the model. Exit code 3: the data\n"
      "cannot be used, or a share is above data.max_truncated, max_unknown or max_malformed.");
  command.callback([options] {
    const Config config = load_training_config(options->config, options->overrides, [](Config& names) {
      resolve_names(names, {.model = hub::ModelParts::tokenizer});
    });
    run_in_library(DataOptions{config, options->json}, config.training.num_threads);
  });
}

}  // namespace trainer::cli
