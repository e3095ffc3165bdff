// trainer chat MODEL
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"

namespace trainer::cli {

void add_chat_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  auto greedy = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("chat", "Hold a conversation with a model");
  command
      ->add_option("-m,--model,model", options->model, "A model or adapter directory, or a name on the hub")
      ->type_name("MODEL");
  command->add_option("--system", options->system, "The system message")->type_name("TEXT");
  add_choices(*command, *options, *greedy);
  add_machine(*command, *options);
  command->footer(
      "One message per line. /help lists what else can be typed: /clear, /system TEXT, /exit. Ctrl-C ends "
      "an\n"
      "answer; at the prompt, twice, it ends the conversation.");
  command->callback([options, greedy] {
    require_option(options->model, "chat", "MODEL (a directory or name)");
    resolve_choices(*options, *greedy, "chat");
    options->chat = true;
    options->model = resolve_model_name(options->model);
    open_core(options->num_threads).generate(*options);
  });
}

}  // namespace trainer::cli
