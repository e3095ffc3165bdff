#include "cli/commands.h"

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/config/load.h"

namespace trainer::cli {

void add_train(CLI::App& command);
void add_eval(CLI::App& command);
void add_config(CLI::App& command);
void add_generate(CLI::App& command);
void add_chat(CLI::App& command);
void add_init(CLI::App& command);
void add_import_config(CLI::App& command);
void add_merge(CLI::App& command);
void add_export(CLI::App& command);
void add_plan(CLI::App& command);
void add_data(CLI::App& command);
void add_report(CLI::App& command);
void add_tokenize(CLI::App& command);
void add_doctor(CLI::App& command);
void add_fetch(CLI::App& command);
void add_models(CLI::App& command);
void add_status(CLI::App& command);
void add_runs(CLI::App& command);
void add_ui(CLI::App& command);
void add_completion(CLI::App& command);
void add_complete(CLI::App& command);
void add_help(CLI::App& command);
void add_explain(CLI::App& command);

namespace {

constexpr Command kCommands[] = {
    {"train", "Fine-tune a model (the word train may be left out: trainer --config FILE)", add_train},
    {"eval", "Evaluate a model on data: loss, perplexity, token accuracy, scores of its answers", add_eval},
    {"config", "Print the resolved configuration with comments, ready to save", add_config},
    {"generate", "Answer prompts with a model", add_generate},
    {"chat", "Hold a conversation with a model", add_chat},
    {"init",
     "Write a first configuration for a model, data and a GPU, from a look at the rows and a memory plan",
     add_init},
    {"import-config",
     "Translate a configuration of axolotl, LLaMA-Factory, Hugging Face TrainingArguments or torchtune",
     add_import_config},
    {"merge", "Merge an adapter into its base model, one tensor at a time", add_merge},
    {"export", "Write a model for other programs: safetensors or GGUF, merged, checked by reloading it",
     add_export},
    {"plan", "Predict the memory that a run will need, in a second; needs no weights, data or GPU", add_plan},
    {"data", "Report on the data of a run: lengths, truncated, repeated and unknown rows, samples", add_data},
    {"report", "Write a page with the curves of a run, or of several next to each other (HTML, one file)",
     add_report},
    {"tokenize",
     "Convert rows {\"text\": ...} to {\"ids\": [...]} or back, or show which tokens of conversations are "
     "supervised",
     add_tokenize},
    {"doctor", "Check this machine and, given a configuration, whether its run could start; trains nothing",
     add_doctor},
    {"models", "List the families of models, or say of a model whether it can be trained, and why not",
     add_models},
    {"fetch", "Download a model or data set of the Hugging Face Hub by its name, and print where it is",
     add_fetch},
    {"status", "Say what a run is doing, from the files in its output directory; also on another machine",
     add_status},
    {"runs", "List the runs in and below a directory, the newest last", add_runs},
    {"ui", "Show runs on a page in the browser, live: curves, samples, memory, log, plans, chat", add_ui},
    {"completion", "Print the completion script of a shell: bash, zsh or fish", add_completion},
    {"complete", "Print what the last word of a command line may become", add_complete},
    {"help", "Find what answers a word, or show a page of the documentation; without WORD, list the pages",
     add_help},
    {"explain", "Say what a configuration key, an error or an exit code means", add_explain},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

std::vector<const CLI::App*> listed_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

bool takes_keys(const CLI::App& command) { return command.get_option_no_throw("overrides") != nullptr; }

void require_option(const std::string& value, const std::string& command, const std::string& option) {
  if (value.empty())
    throw of_family(ErrorCode::command_line, ConfigError(command + ": " + option +
                                                         " is required; see trainer " + command + " --help"));
}

void warn_of_idle_keys(const Config& config) {
  for (const IdleKey& key : keys_without_effect(config)) {
    if (!key.overridden) log::warning(key.text);
  }
}

}  // namespace trainer::cli
