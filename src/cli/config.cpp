// trainer config [--config FILE] [key=value ...]
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/load.h"

#include "cli/commands.h"
#include "config/foreign_keys.h"
#include "config/presets.h"

namespace trainer::cli {

void add_config(CLI::App& command) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    bool reference = false, schema = false, foreign = false, list = false;
  };
  auto options = std::make_shared<Options>();
  command.add_option("-c,--config", options->config, "Configuration (YAML)")->type_name("FILE");
  command.add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  CLI::Option* reference =
      command.add_flag("--reference", options->reference, "Print the reference of all keys (docs/config.md)");
  CLI::Option* schema =
      command.add_flag("--schema", options->schema, "Print the JSON schema (configs/schema.json)")
          ->excludes(reference);
  CLI::Option* foreign =
      command
          .add_flag("--foreign", options->foreign, "Print the keys of other trainers (docs/coming-from.md)")
          ->excludes(reference, schema);
  command.add_flag("--list", options->list, "List the presets that come with the program")
      ->excludes(reference, schema, foreign);
  command.callback([options] {
    if (options->reference) {
      write_reference_page(std::cout);
    } else if (options->schema) {
      write_json_schema(std::cout);
    } else if (options->foreign) {
      config::write_foreign_keys(std::cout);
    } else if (options->list) {
      write_presets(std::cout);
    } else {
      const Config config = load_config(options->config, options->overrides);
      warn_of_idle_keys(config);
      write_yaml(config, std::cout);
    }
  });
}

}  // namespace trainer::cli
