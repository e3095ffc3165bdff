// trainer eval MODEL DATA ... | --config FILE [key=value ...]
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "config/run_config.h"

namespace trainer::cli {
namespace {

struct EvalWords {
  std::vector<std::string> words;  // model, data, keys
  std::optional<std::string> config;
  bool generate = false;
  std::optional<int64_t> max_new_tokens;
};

// section.key=value, or key=value where that is no file.
bool is_override(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && !std::filesystem::exists(word);
}

bool holds_result(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / "config.json") ||
         std::filesystem::exists(directory / "adapter_config.json");
}

EvalOptions resolve_eval(EvalOptions options, const EvalWords& words) {
  std::vector<std::string> paths, overrides;
  for (const std::string& word : words.words) (is_override(word) ? overrides : paths).push_back(word);
  const auto run = words.config || paths.empty() ? std::nullopt : config_of_run(paths.front(), overrides);
  options.config = run ? *run : load_config(words.config, overrides);
  Config& config = options.config;
  if (!paths.empty()) {
    config.model.path = paths.front();
    if (paths.size() > 1) config.data.eval = {{paths.begin() + 1, paths.end()}, 0};
  } else if (words.config && holds_result(config.output_dir)) {
    config.model.path = config.output_dir;
  }
  require_option(config.model.path, "eval", "MODEL (a directory, or --config FILE)");
  if (config.data.eval.empty())
    throw ConfigError(
        "eval: no data; give files of rows after the model, or set data.eval in the configuration");
  if (words.generate) config.evaluation.generate = true;
  if (words.max_new_tokens) config.evaluation.max_new_tokens = words.max_new_tokens;
  if (!options.predictions_file.empty() && !config.evaluation.generate)
    throw ConfigError("eval: --predictions FILE needs --generate");
  if (!options.against.empty() && !config.evaluation.generate)
    throw ConfigError("eval: --against compares answers, so it needs --generate");
  if ((options.save_logits > 0) != !options.logits_folder.empty())
    throw ConfigError("eval: --save-logits N and --logits FOLDER belong together");
  config.objective.teacher.clear();  // it is asked for a run
  resolve_names(config, {.adapter = false, .train = config.data.eval.held_out > 0});
  options.base = resolve_model_name(options.base);
  if (!std::filesystem::is_regular_file(options.against))
    options.against = resolve_model_name(options.against);
  return options;
}

}  // namespace

void add_eval(CLI::App& command) {
  auto options = std::make_shared<EvalOptions>();
  auto words = std::make_shared<EvalWords>();
  command
      .add_option("MODEL", words->words,
                  "A model or adapter directory, files of rows, and configuration keys that override the "
                  "file (data.*, training.eval_batch_size, device, ...). The result of a run is evaluated as "
                  "the run says: without DATA on data.eval or the rows that were held out")
      ->option_text("DATA ... [key=value ...]");
  command
      .add_option(
          "-c,--config", words->config,
          "Configuration of a run; says how its data is read. Without MODEL, the result in its output_dir "
          "is evaluated, or model.path if there is no result yet; without DATA, data.eval is used")
      ->type_name("FILE");
  command
      .add_option("--base", options->base, "For an adapter: its base model (default: the one that it names)")
      ->type_name("DIR");
  command.add_flag("--json", options->json, "Print one JSON object, with the keys of metrics.jsonl");
  command.add_flag(
      "--generate", words->generate,
      "Also generate answers to the inputs and score them; the same as evaluation.generate=true");
  command
      .add_option("--max-new-tokens", words->max_new_tokens,
                  "With --generate: longest answer; the same as evaluation.max_new_tokens=N")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--predictions", options->predictions_file,
                  "With --generate: write rows with input, target and prediction to this file")
      ->type_name("FILE");
  command
      .add_option("--against", options->against,
                  "With --generate: also score the answers of this model, or those of a file that "
                  "--predictions wrote, on the same rows, and say how sure each difference is")
      ->type_name("MODEL|FILE");
  command
      .add_option(
          "--save-logits", options->save_logits,
          "Also write what the model says of the data: at each place that is learned, its N likeliest "
          "tokens with their log-probabilities. A model that is smaller can learn from it "
          "(objective.logits)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command.add_option("--logits", options->logits_folder, "With --save-logits: the folder to write to")
      ->type_name("FOLDER");
  command.callback([options, words] {
    const EvalOptions resolved = resolve_eval(*options, *words);
    run_in_library(resolved, resolved.config.training.num_threads, resolved.config.memory);
  });
}

}  // namespace trainer::cli
