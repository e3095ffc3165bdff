#include "cli/generate_options.h"

#include "trainer/base/strings.h"

#include "cli/commands.h"

namespace trainer::cli {
namespace {

const CLI::Range kCount(1, 1'000'000);
const CLI::Validator kAboveZero(CLI::PositiveNumber);

}  // namespace

void add_choices(CLI::App& command, GenerateOptions& options, bool& greedy) {
  const std::string group = "How tokens are chosen (defaults: the model's generation_config.json)";
  const auto number = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->type_name("N")->group(group);
  };
  number("--max-new-tokens", options.max_new_tokens,
         "Maximum length of an answer (256 if the file does not say)")
      ->check(kCount);
  number("--min-new-tokens", options.min_new_tokens, "Minimum length of an answer")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--greedy", greedy, "Take the most likely token (the default, whatever the file says)")
      ->group(group);
  command
      .add_flag("--sample", options.sample,
                "Sample tokens. Implied by --temperature, --top-k, --top-p and --min-p; with --num-beams, "
                "beams are sampled")
      ->group(group);
  number("--temperature", options.temperature, "Divides the logits; 0 is the same as --greedy")
      ->check(CLI::NonNegativeNumber);
  number("--top-k", options.top_k,
         "Sample from this many most likely tokens (50 if the file does not say; 0: all)")
      ->check(CLI::NonNegativeNumber);
  number("--top-p", options.top_p, "Sample from the most likely tokens that together have this probability")
      ->check(CLI::Range(0.0, 1.0));
  number("--min-p", options.min_p, "Sample from tokens at least this likely, relative to the most likely one")
      ->check(CLI::Range(0.0, 1.0));
  number("--seed", options.seed, "Random seed; an answer depends only on it and on its row")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  number("--repetition-penalty", options.repetition_penalty,
         "Above 1: tokens that have already occurred are less likely")
      ->check(kAboveZero);
  number("--no-repeat-ngram-size", options.no_repeat_ngram_size,
         "No sequence of this many tokens occurs twice")
      ->check(CLI::NonNegativeNumber);
  number("--num-beams", options.num_beams, "Beam search with this many beams")->check(CLI::Range(1, 1000));
  number("--length-penalty", options.length_penalty, "Beam search: above 0 prefers longer answers");
  command.add_option("--early-stopping", options.early_stopping, "Beam search: true, false or never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"true", "false", "never"}))
      ->group(group);
  number("--num-return-sequences", options.num_return_sequences,
         "Answers per prompt; in rows they are a list in `predictions`")
      ->check(CLI::Range(1, 1000));
  command.add_option("--stop", options.stop, "End an answer before this text; can be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
}

void add_machine(CLI::App& command, GenerateOptions& options) {
  command.add_option("--batch-size", options.batch_size, "Prompts answered at once")
      ->capture_default_str()
      ->type_name("N")
      ->check(kCount);
  command.add_option("--device", options.device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str()
      ->type_name("NAME");
  command.add_option("--dtype", options.dtype, "auto, bf16 or fp32")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}));
  command.add_flag("!--no-tf32", options.tf32,
                   "On a GPU, multiply fp32 matrices in full precision, as on the CPU, and not in TF32");
  command
      .add_option("--memory-limit", options.memory_limit,
                  "18GB, or a share of the device's free memory; fewer prompts are answered at once to stay "
                  "within it")
      ->type_name("SIZE");
  command
      .add_option("--num-threads", options.num_threads,
                  "Threads on the CPU (default: OMP_NUM_THREADS, else one per core)")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
}

void resolve_choices(GenerateOptions& options, bool greedy, const std::string& command) {
  if (options.temperature == 0.0) {
    if (options.sample) throw ConfigError(command + ": --temperature 0 is greedy; leave out --sample");
    options.temperature = options.top_p = options.min_p = std::nullopt;
    options.top_k = std::nullopt;
  }
  const bool drawn = options.temperature || options.top_k || options.top_p || options.min_p;
  if (greedy && (options.sample || drawn)) {
    throw ConfigError(
        command + ": --greedy cannot be combined with --sample, --temperature, --top-k, --top-p or --min-p");
  }
  options.sample = options.sample || drawn;
  for (const std::string& stop : options.stop) {
    if (stop.empty()) throw ConfigError(command + ": --stop: the text must not be empty");
  }
}

}  // namespace trainer::cli
