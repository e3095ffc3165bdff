// trainer generate MODEL [PROMPT ...] | --input-file FILE | --chat
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"

namespace trainer::cli {
namespace {

struct GenerateWords {
  std::string model;
  std::vector<std::string> words, prompts;  // positional; after --prompt
  bool greedy = false;
};

void add_what(CLI::App& command, GenerateOptions& options, GenerateWords& words) {
  command.add_option("words", words.words, "A model or adapter directory, then prompts")
      ->type_name("MODEL [PROMPT ...]");
  command
      .add_option("-m,--model", words.model,
                  "The model or adapter directory; then all other words are prompts")
      ->type_name("DIR");
  command.add_option("-p,--prompt", words.prompts, "A prompt; can be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      .add_option("-i,--input-file,--input", options.input_file,
                  "Prompts, or conversations in `messages`, as JSON lines; - is stdin. Each row is printed "
                  "with its `prediction`")
      ->type_name("FILE");
  command
      .add_option("-o,--output-file,--output", options.output_file,
                  "File to write answers to (default: stdout)")
      ->type_name("FILE");
  command.add_flag("--chat", options.chat,
                   "Treat prompts as user messages and format them with the model's chat template. Without "
                   "prompts: hold a conversation, as `trainer chat` does");
  command.add_option("--system", options.system, "With --chat: the system message")->type_name("TEXT");
}

// Fills in what the words mean together.
void resolve(GenerateOptions& options, const GenerateWords& words) {
  std::vector<std::string> rest = words.words;
  options.model = words.model;
  if (options.model.empty() && !rest.empty()) {
    options.model = rest.front();
    rest.erase(rest.begin());
  }
  require_option(options.model, "generate", "MODEL (a directory)");
  options.prompts = words.prompts;
  options.prompts.insert(options.prompts.end(), rest.begin(), rest.end());
  if (!options.prompts.empty() && !options.input_file.empty())
    throw ConfigError("generate: give either prompts or --input-file, not both");
  if (options.prompts.empty() && options.input_file.empty() && !options.chat)
    throw ConfigError("generate: give a prompt after the model, --input-file FILE, or --chat");
  if (!options.system.empty() && !options.chat && options.input_file.empty())
    throw ConfigError("generate: --system needs --chat");
  resolve_choices(options, words.greedy, "generate");
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  auto words = std::make_shared<GenerateWords>();
  CLI::App* command = app.add_subcommand("generate", "Answer prompts with a model");
  add_what(*command, *options, *words);
  add_choices(*command, *options, words->greedy);
  add_machine(*command, *options);
  command->callback([options, words] {
    resolve(*options, *words);
    options->model = resolve_model_name(options->model);
    open_core(options->num_threads).generate(*options);
  });
}

}  // namespace trainer::cli
