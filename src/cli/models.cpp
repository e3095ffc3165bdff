// trainer models [MODEL ...]
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"

namespace trainer::cli {

void add_models(CLI::App& command) {
  auto options = std::make_shared<ModelsOptions>();
  command
      .add_option(
          "models", options->names,
          "A model's directory, its name on the Hugging Face Hub, or the name of a file of configs/models")
      ->type_name("MODEL");
  command.add_flag("--markdown", options->markdown, "Print the list as a table in Markdown");
  command.footer(
      "Without MODEL it lists the families. Of a MODEL it says \"known\", \"near\" with what differs, or "
      "\"not\"\n"
      "with the reason. Only config.json is read, and of a name on the Hub only that is downloaded.");
  command.callback([options] {
    for (const std::string& name : options->names)
      options->paths.push_back(resolve_model_name(name, hub::ModelParts::config));
    run_in_library(*options, 1);
  });
}

}  // namespace trainer::cli
