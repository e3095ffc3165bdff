// trainer generate --model DIR --prompt TEXT | --input FILE
#include <memory>
#include <string>

#include "trainer/base/error.h"

#include "cli/commands.h"
#include "cli/open_core.h"

namespace trainer::cli {

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Answer prompts with a model (greedy)");
  command->add_option("-m,--model", options->model, "Model or adapter directory")->type_name("DIR");
  CLI::Option* prompt =
      command->add_option("-p,--prompt", options->prompts, "A prompt; may be given several times")
          ->type_name("TEXT");
  prompt->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  CLI::Option* input =
      command->add_option("-i,--input", options->input_file, "Prompts as rows of JSON; - is stdin")
          ->type_name("FILE");
  input->excludes(prompt);
  command->add_option("-o,--output", options->output_file, "Where answers go (default: stdout)")
      ->type_name("FILE");
  command->add_option("--max-new-tokens", options->max_new_tokens, "Longest answer")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--batch-size", options->batch_size, "Prompts answered at once")
      ->capture_default_str()
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str()
      ->type_name("NAME");
  command->add_option("--dtype", options->dtype, "auto, bf16 or fp32")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}));
  command->add_option("--num-threads", options->num_threads, "Threads on the CPU (default: one per core)")
      ->type_name("N")
      ->check(CLI::Range(0, 4096));
  command->callback([options] {
    require_option(options->model, "generate", "--model DIR");
    if (options->prompts.empty() && options->input_file.empty()) {
      throw ConfigError("generate: give a --prompt TEXT or an --input FILE");
    }
    open_core(options->num_threads).generate(*options);
  });
}

}  // namespace trainer::cli
