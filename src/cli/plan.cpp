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

std::string problem_of_cards(const std::string& text) {
  if (parse_cards(text)) return "";
  return "'" + text +
         "': write the size of a GPU (24GB), GPUSxSIZE (2x24GB) or MACHINESxGPUSxSIZE (4x8x80GB)";
}

// A size alone means as many GPUs as the configuration names.
std::vector<Cards> cards_of(const std::vector<std::string>& texts, const Config& config) {
  std::vector<Cards> list;
  for (const std::string& text : texts) {
    list.push_back(parse_cards(text).value());
    if (text.find('x') == std::string::npos) list.back().per_machine = config.parallel.gpus.of(1);
  }
  return list;
}

}  // namespace

void add_plan(CLI::App& command) {
  struct Options {
    std::optional<std::string> config;
    std::vector<std::string> overrides;
    bool json = false, search = false;
    std::vector<std::string> gpus;
  };
  auto options = std::make_shared<Options>();
  command.add_option("-c,--config", options->config, "Configuration (YAML)")->type_name("FILE");
  command.add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command.add_flag("--json", options->json, "Print the plan as JSON");
  command.add_flag(
      "--search", options->search,
      "Show what other batch sizes and gradient checkpointing in fewer or more layers need and cost in time, "
      "and which settings save memory");
  command
      .add_option(
          "--gpus", options->gpus,
          "Show what fits on GPUs of these sizes: 16,24GB,80GB (a bare number is GB). 2x24GB: on each of "
          "two that train together, and what the connection between them costs in time; 4x8x80GB: on 4 "
          "machines of 8")
      ->type_name("SIZES")
      ->delimiter(',')
      ->allow_extra_args(false)  // the next argument is a key
      ->check(CLI::Validator([](const std::string& text) { return problem_of_cards(text); }, ""));
  command.footer(
      "model.path is a model directory, of which only config.json is read, the name of a model on the "
      "Hugging Face Hub, "
      "of\n"
      "which only config.json is downloaded, or the name of a file in configs/models. device=cpu plans for "
      "the CPU, anything else for a GPU. Exit code 0: the run fits,\n"
      "5: it does not fit.");
  command.callback([options] {
    Config config = load_config(options->config, options->overrides);
    warn_of_idle_keys(config);
    resolve_names(config, {.model = hub::ModelParts::config, .train = false, .eval = false});
    run_in_library(PlanOptions{config, options->json, options->search, cards_of(options->gpus, config)},
                   config.training.num_threads);
  });
}

}  // namespace trainer::cli
