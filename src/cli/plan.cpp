// trainer plan --config FILE [key=value ...]
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/load.h"

#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"

namespace trainer::cli {

namespace {

// A card is known by its GB: 24 means 24GB.
std::string as_gpu_size(std::string text) {
  const bool number = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  return number && text.size() <= 4 ? text + "GB" : text;
}

}  // namespace

void add_plan_command(CLI::App& app) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    bool json = false, search = false;
    std::vector<int64_t> gpus;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "plan", "Predict the memory that a run will need, in a second; needs no weights, data or GPU");
  command->add_option("-c,--config", options->config, "Configuration (YAML)")->type_name("FILE");
  command->add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command->add_flag("--json", options->json, "Print the plan as JSON");
  command->add_flag("--search", options->search,
                    "Show what other batch sizes and numbers of recomputed blocks need and cost in time, and "
                    "which settings save memory");
  command
      ->add_option("--gpus", options->gpus,
                   "Show what fits on GPUs of these sizes: 16,24GB,80GB (a bare number is GB)")
      ->type_name("SIZES")
      ->delimiter(',')
      ->allow_extra_args(false)  // what follows is a key
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->transform(CLI::Validator(
          [](std::string& text) {
            text = as_gpu_size(text);
            return std::string();
          },
          ""));
  command->footer(
      "model.path is a model directory, of which only config.json is read, the name of a model on the hub, "
      "of\n"
      "which only config.json is downloaded, or the name of a file in configs/models. device=cpu plans for "
      "the CPU, anything else for a GPU. Exit code 0: the run fits,\n"
      "5: it does not fit.");
  command->callback([options] {
    Config config = load_config(options->config, options->overrides);
    resolve_names(config, {.model = hub::ModelParts::config, .train = false, .eval = false});
    open_core(config.training.num_threads).plan({config, options->json, options->search, options->gpus});
  });
}

}  // namespace trainer::cli
