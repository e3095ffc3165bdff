// trainer generate MODEL [PROMPT ...] | --input-file FILE | --chat
#include <cmath>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "cli/commands.h"
#include "cli/open_core.h"
#include "cli/resolve_names.h"
#include "commands/options.h"
#include "config/run_config.h"

namespace trainer::cli {
namespace {

// Options that `trainer generate` and `trainer chat` share.

const CLI::Range kCount(1, 1'000'000);
const CLI::Validator kAboveZero(CLI::PositiveNumber);
// A NaN is neither below nor above any limit.
const CLI::Validator kFinite(
    [](const std::string& text) {
      double value = 0;
      return CLI::detail::lexical_cast(text, value) && !std::isfinite(value)
                 ? text + " is not a finite number"
                 : "";
    },
    "", "finite");

// Adds the options for sampling. `options` and `greedy` must outlive the parsing of the command line.
void add_choices(CLI::App& command, GenerateOptions& options, bool& greedy) {
  const std::string group = "How tokens are chosen (defaults: the model's generation_config.json)";
  const auto number = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->type_name("N")->group(group)->check(kFinite);
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
  number("--num-beam-groups", options.num_beam_groups,
         "Diverse beams: this many groups, of which each avoids the tokens of those before it")
      ->check(CLI::Range(1, 1000));
  number("--diversity-penalty", options.diversity_penalty,
         "Diverse beams: what a token costs that other groups have taken, such as 1.0")
      ->check(CLI::NonNegativeNumber);
  number("--length-penalty", options.length_penalty, "Beam search: above 0 prefers longer answers");
  command.add_option("--early-stopping", options.early_stopping, "Beam search: true, false or never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"true", "false", "never"}))
      ->group(group);
  number("--num-return-sequences", options.num_return_sequences,
         "Answers per prompt; in rows they are a list in `predictions`")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--forced-first", options.forced_first,
                  "Encoder-decoders: the token that each answer begins with, such as that of a language")
      ->type_name("TOKEN")
      ->group(group);
  command
      .add_option("--choices", options.choices_file,
                  "Answer with one of the lines of this file, the most likely one")
      ->type_name("FILE")
      ->group(group);
  command.add_option("--stop", options.stop, "End an answer before this text; can be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
}

void add_base(CLI::App& command, std::string& base) {
  command.add_option("--base", base, "For an adapter: its base model (default: the one that it names)")
      ->type_name("DIR");
}

// Device, type, memory, threads.
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

// Fills in what the choices mean together. Throws ConfigError, which begins with the command's name, where
// they contradict each other.
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
                  "Rows with prompts or conversations: any file that training reads; - is stdin, JSON lines. "
                  "Each row is printed with its `prediction`")
      ->type_name("FILE");
  command
      .add_option("-o,--output-file,--output", options.output_file,
                  "File to write answers to (default: stdout)")
      ->type_name("FILE");
  command.add_flag("--scores", options.scores,
                   "With --input-file and beams: also write the score of each answer, `score` or `scores`");
  command.add_flag(
      "--resume", options.resume,
      "With --input-file and --output-file: keep the answers that the output file has, and go on "
      "behind them");
  command.add_flag(
      "--classify", options.classify,
      "Of a classifier: print the label of each text or row, and the probabilities of all classes, "
      "as JSON lines; of other heads the number, or the reward");
  command
      .add_option("--save-logits", options.save_logits,
                  "With --input-file and --output-file: also write, for each token of the answers, the N "
                  "likeliest ones with their log-probabilities. Another model can learn from both "
                  "(docs/distillation.md)")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command
      .add_option("--logits", options.logits_folder,
                  "With --save-logits: the folder to write to (default: the output file's name and .logits)")
      ->type_name("FOLDER");
  command.add_flag("--chat", options.chat,
                   "Treat prompts as user messages and format them with the model's chat template. Without "
                   "prompts: hold a conversation, as `trainer chat` does");
  command.add_option("--system", options.system, "With --chat: the system message")->type_name("TEXT");
  command.add_flag(
      "--json", options.json,
      "For programs: each line of stdin is a row with a prompt, answered as `trainer chat --json` does");
}

void resolve_logits(GenerateOptions& options) {
  if (options.save_logits == 0) {
    if (!options.logits_folder.empty()) throw ConfigError("generate: --logits FOLDER needs --save-logits N");
    return;
  }
  if (options.input_file.empty() || options.output_file.empty())
    throw ConfigError("generate: --save-logits is for rows: it needs --input-file and --output-file");
  if (options.num_return_sequences.value_or(1) > 1)
    throw ConfigError("generate: --save-logits is for one answer a row, without --num-return-sequences");
  if (options.resume)
    throw ConfigError(
        "generate: --save-logits takes all rows in one go, without --resume; trainer eval "
        "--save-logits writes them for answers that are there");
  if (options.logits_folder.empty()) options.logits_folder = options.output_file + ".logits";
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
  if (options.json && (!options.prompts.empty() || !options.input_file.empty() || options.chat))
    throw ConfigError("generate: --json reads rows from stdin, without prompts, --input-file and --chat");
  if (options.classify && (options.chat || options.json || options.resume || options.scores))
    throw ConfigError(
        "generate: --classify takes texts or --input-file, without --chat, --json, --resume and --scores");
  if (options.prompts.empty() && options.input_file.empty() && !options.chat && !options.json)
    throw ConfigError("generate: give a prompt after the model, --input-file FILE, or --chat");
  if (!options.system.empty() && !options.chat && options.input_file.empty())
    throw ConfigError("generate: --system needs --chat");
  if (options.scores && options.input_file.empty())
    throw ConfigError("generate: --scores is for rows and beams: it needs --input-file");
  if (options.resume &&
      (options.output_file.empty() || options.input_file.empty() || options.input_file == "-"))
    throw ConfigError("generate: --resume needs --input-file (a file, not -) and --output-file");
  resolve_choices(options, words.greedy, "generate");
  resolve_logits(options);
}

// A run's result is asked as it was trained.
void take_over_run(GenerateOptions& options) {
  const auto run = config_of_run(options.model);
  if (!run) return;
  options.data = run->data;
  options.of_run = true;
  if (!options.max_new_tokens) options.max_new_tokens = run->evaluation.max_new_tokens;
}

}  // namespace

void add_generate(CLI::App& command) {
  auto options = std::make_shared<GenerateOptions>();
  auto words = std::make_shared<GenerateWords>();
  add_what(command, *options, *words);
  add_base(command, options->base);
  add_choices(command, *options, words->greedy);
  add_machine(command, *options);
  command.callback([options, words] {
    resolve(*options, *words);
    options->model = resolve_model_name(options->model);
    options->base = resolve_model_name(options->base);
    take_over_run(*options);
    run_in_library(*options, options->num_threads);
  });
}

// trainer chat MODEL
void add_chat(CLI::App& command) {
  auto options = std::make_shared<GenerateOptions>();
  auto greedy = std::make_shared<bool>(false);
  command
      .add_option("-m,--model,model", options->model,
                  "A model or adapter directory, or a name on the Hugging Face Hub")
      ->type_name("MODEL");
  command.add_option("--system", options->system, "The system message")->type_name("TEXT");
  command.add_flag("--json", options->json,
                   "For programs: each line of stdin is {\"messages\": [...]}, and the answer comes as lines "
                   "{\"piece\": \"...\"} and {\"answer\": \"...\"}");
  add_base(command, options->base);
  add_choices(command, *options, *greedy);
  add_machine(command, *options);
  command.footer(
      "One message per line. /help lists what else can be typed: /clear, /system TEXT, /temperature N, "
      "/exit.\n"
      "A message that begins with a slash is written with two. Ctrl-C ends an answer; at the prompt, twice, "
      "it "
      "ends\nthe conversation.");
  command.callback([options, greedy] {
    require_option(options->model, "chat", "MODEL (a directory or name)");
    resolve_choices(*options, *greedy, "chat");
    options->chat = true;
    options->model = resolve_model_name(options->model);
    options->base = resolve_model_name(options->base);
    take_over_run(*options);
    run_in_library(*options, options->num_threads);
  });
}

}  // namespace trainer::cli
