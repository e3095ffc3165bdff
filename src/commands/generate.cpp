// trainer generate: answers prompts, rows of JSON, or a conversation.
#include "trainer/generation/generate.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"
#include "trainer/device/device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/oom.h"
#include "trainer/text/answer_text.h"
#include "trainer/training/evaluate.h"

#include "base/live_lines.h"
#include "base/progress.h"
#include "base/progress_share.h"
#include "commands/classify.h"
#include "commands/library.h"
#include "commands/prompts.h"
#include "memory/set_up_device.h"
#include "run/end_of_run.h"
#include "run/fixed_settings.h"
#include "run/run_model.h"
#include "run/teacher_logits.h"

namespace trainer {
namespace {

constexpr const char* kMemoryAdvice =
    "What helps: a larger --memory-limit, a smaller --num-beams or --max-new-tokens; --dtype bf16; --device "
    "cpu.";

ModelConfig model_config(const GenerateOptions& options) {
  ModelConfig config;
  config.path = options.model;
  if (options.dtype == "bf16") config.dtype = ModelDtype::bf16;
  if (options.dtype == "fp32") config.dtype = ModelDtype::fp32;
  return config;
}

// Options on the command line override those of the file.
void apply(const GenerateOptions& options, GenerationConfig& config) {
  const auto set = [](auto& value, const auto& option) {
    if (option) value = *option;
  };
  set(config.max_new_tokens, options.max_new_tokens);
  if (options.max_new_tokens) config.max_length = 0;  // as in Transformers
  set(config.min_new_tokens, options.min_new_tokens);
  set(config.temperature, options.temperature);
  set(config.top_k, options.top_k);
  set(config.top_p, options.top_p);
  set(config.min_p, options.min_p);
  set(config.repetition_penalty, options.repetition_penalty);
  set(config.no_repeat_ngram_size, options.no_repeat_ngram_size);
  set(config.num_beams, options.num_beams);
  set(config.num_beam_groups, options.num_beam_groups);
  set(config.diversity_penalty, options.diversity_penalty);
  set(config.num_return_sequences, options.num_return_sequences);
  set(config.length_penalty, options.length_penalty);
  if (options.early_stopping == "true") config.early_stopping = EarlyStopping::yes;
  if (options.early_stopping == "false") config.early_stopping = EarlyStopping::no;
  if (options.early_stopping == "never") config.early_stopping = EarlyStopping::never;
  if (!options.stop.empty()) config.stop_strings = options.stop;
  config.do_sample = options.sample;
  config.seed = static_cast<uint64_t>(options.seed);
}

// The ids of a token that has exactly this name.
int32_t token_named(const std::string& name, const Tokenizer& tokenizer) {
  if (const auto id = tokenizer.token_to_id(name)) return *id;
  throw ConfigError(concat("generate: --forced-first: '", name, "' is no token of this model's tokenizer"));
}

// Each line as it is learned as a target, with the token that ends it.
std::vector<Tokens> read_choices(const std::string& file, const Tokenizer& tokenizer, bool encoder_decoder,
                                 const GenerationConfig& config) {
  std::vector<Tokens> choices;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    Tokens ids = tokenizer.encode(line, encoder_decoder);
    const bool ends =
        !ids.empty() && std::ranges::find(config.eos_token_ids, ids.back()) != config.eos_token_ids.end();
    if (!ends && !config.eos_token_ids.empty()) ids.push_back(config.eos_token_ids.front());
    choices.push_back(std::move(ids));
  }
  if (choices.empty()) throw DataError(concat(file, ": has no line with an answer (--choices)"));
  return choices;
}

// Where only some answers are allowed. The longest of them needs room.
void restrict_answers(const GenerateOptions& options, const OpenModel& opened, GenerationConfig& config) {
  const bool encoder_decoder = opened.model->encoder_decoder();
  if (!options.forced_first.empty()) {
    if (!encoder_decoder) throw ConfigError("generate: --forced-first is for encoder-decoders (T5)");
    config.forced_bos_token_id = token_named(options.forced_first, *opened.tokenizer);
  }
  if (options.choices_file.empty()) return;
  config.choices = read_choices(options.choices_file, *opened.tokenizer, encoder_decoder, config);
  int64_t longest = 0;
  for (const Tokens& choice : config.choices) longest = std::max(longest, std::ssize(choice));
  if (options.max_new_tokens && *options.max_new_tokens < longest)
    throw ConfigError(concat("generate: --choices ", options.choices_file, ": an answer has ", longest,
                             " tokens, but --max-new-tokens is ", *options.max_new_tokens));
  config.max_new_tokens = longest;
  config.max_length = 0;
}

// Returns how many of the first rows an output file has answers to. What a kill has left of the next answer
// is cut off. Throws DataError if they are not answers to these rows.
size_t answered_rows(const std::string& file, const std::vector<PlacedRow>& rows) {
  if (!std::filesystem::exists(file)) return 0;
  const std::string content = read_file(file);
  size_t count = 0, end = 0;
  for (size_t line_end; (line_end = content.find('\n', end)) != std::string::npos; end = line_end + 1) {
    const auto answered =
        Row::parse(content.substr(end, line_end - end), nullptr, /*allow_exceptions=*/false);
    const bool fits = count < rows.size() && answered.is_object() &&
                      (answered.contains("prediction") || answered.contains("predictions")) &&
                      std::ranges::all_of(rows[count].row.items(), [&](const auto& field) {
                        return answered.contains(field.key()) && answered[field.key()] == field.value();
                      });
    if (!fits)
      throw DataError(concat(file, ":", count + 1, ": is not the answer to ",
                             count < rows.size() ? rows[count].where : "any of the rows",
                             "; without --resume the file is written anew"));
    count++;
  }
  std::filesystem::resize_file(file, end);
  return count;
}

// Returns the answers as text, in the order of the prompts. `first`: the number of the first prompt, on which
// sampling depends.
void answer_all(
    const OpenModel& opened, const std::vector<Tokens>& prompts, size_t first, const GenerationConfig& config,
    const GenerateOptions& options, at::Device device,
    const std::function<void(size_t, const std::vector<std::string>&, const std::vector<float>&)>& deliver) {
  const AnswerText text(*opened.tokenizer, config.stop_strings, config.eos_token_ids);
  GenerationHooks hooks;
  if (!config.stop_strings.empty()) hooks.stop = [&](const Tokens& ids) { return text.stops_at(ids); };
  RetryOptions retry;
  retry.device = device;
  retry.on_retry = [](const OutOfMemory& oom, int64_t size) {
    log::warning(concat("out of memory with so many prompts at once (", oom.numbers(), "); from here on ",
                        size, " at once"));
  };
  OomHandler batch_size(options.batch_size, retry);
  Progress shown("answers", std::ssize(prompts));
  hooks.on_progress = [&](double answered) {
    set_share(shown, answered / static_cast<double>(prompts.size()));
  };
  for (size_t i = 0; i < prompts.size(); i++) hooks.numbers.push_back(first + i);
  std::vector<std::vector<float>> scores(prompts.size());
  if (options.scores)
    hooks.on_scores = [&](size_t index, const std::vector<float>& of_input) { scores[index] = of_input; };
  const auto deliver_texts = [&](size_t index, const std::vector<Tokens>& answers) {
    std::vector<std::string> texts;
    for (const Tokens& ids : answers) texts.push_back(text.text(ids));
    shown.add();
    const LiveLinesHidden hidden;  // answers may go to the same terminal
    deliver(index, texts, scores[index]);
  };
  try {
    generate_in_batches(*opened.model, prompts, config, device, batch_size, hooks, deliver_texts);
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(concat(error.what(), "\n", kMemoryAdvice));
  }
}

void answer_prompts(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
                    const GenerateOptions& options, at::Device device, std::ostream& out) {
  std::vector<Tokens> prompts;
  for (const std::string& prompt : options.prompts) {
    prompts.push_back(encoder.encode(prompt));
    warn_of_length(*opened.model, prompts.back(), concat("prompt ", prompts.size()));
  }
  encoder.warn_of_two_begins(prompts);
  answer_all(opened, prompts, 0, config, options, device,
             [&](size_t, const std::vector<std::string>& answers, const std::vector<float>&) {
               for (const std::string& answer : answers) out << answer << std::endl;
             });
}

// `first`: the number of the first row.
void answer_rows(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
                 std::vector<PlacedRow> rows, size_t first, const GenerateOptions& options, at::Device device,
                 std::ostream& out) {
  std::vector<Tokens> prompts;
  for (const PlacedRow& row : rows) {
    prompts.push_back(encoder.encode(row));
    warn_of_length(*opened.model, prompts.back(), row.where);
  }
  encoder.warn_of_two_begins(prompts);
  answer_all(opened, prompts, first, config, options, device,
             [&](size_t index, const std::vector<std::string>& answers, const std::vector<float>& scores) {
               if (options.save_logits > 0) rows[index].row = encoder.answered(rows[index], answers.front());
               Row row = std::move(rows[index].row);
               if (config.num_return_sequences > 1) {
                 row["predictions"] = answers;
                 if (!scores.empty()) row["scores"] = scores;
               } else {
                 row["prediction"] = answers.front();
                 if (!scores.empty()) row["score"] = scores.front();
               }
               out << row.dump(-1, ' ', false, Row::error_handler_t::replace) << std::endl;
             });
}

// Writes what the model says of the answers in options.output_file. They are tokenized again, as a run that
// learns from them will do: a text may have other tokens than those that it was generated with. `input`: the
// field of the prompt, or a template; "" if the rows are conversations.
void save_answer_logits(const GenerateOptions& options, const OpenModel& opened, const std::string& input,
                        at::Device device) {
  Config config;
  config.data = options.data;
  config.data.train = {DataSource(options.output_file)};
  config.data.eval = {};
  config.data.kind = input.empty() ? DataKind::chat : DataKind::automatic;
  config.data.input = input;
  config.data.target = input.empty() ? "" : "prediction";
  config.model.path = opened.chat.string();
  config.training.eval_batch_size = options.batch_size;
  settle_packing(config, *opened.model, device.type());
  const Dataset data = Dataset::open_train(config, *opened.tokenizer, opened.model->encoder_decoder());
  save_logits({*opened.model, *opened.tokenizer, {{"the model", teacher_text(options.model)}}}, data, config,
              device, options.save_logits, options.logits_folder);
  log::info(concat("to learn from them: data.train=", options.output_file,
                   input.empty() ? "" : concat(" 'data.input=", input, "' data.target=prediction"),
                   " objective.name=distill objective.logits=", options.logits_folder));
}

// Returns whether the chat template is used.
bool converses(const GenerateOptions& options, const PromptEncoder& encoder,
               const std::vector<PlacedRow>& rows) {
  return options.chat ||
         std::ranges::any_of(rows, [&](const PlacedRow& row) { return encoder.converses(row.row); });
}

// Answers of an earlier command stay until nothing refuses this one. A pipe has none.
void drop_old_answers(const GenerateOptions& options) {
  if (!options.resume && std::filesystem::is_regular_file(options.output_file))
    std::filesystem::resize_file(options.output_file, 0);
}

void run_generation(const GenerateOptions& options) {
  std::vector<PlacedRow> rows;
  if (!options.input_file.empty()) rows = read_rows(options.input_file, options.data.cache);
  size_t first = 0;
  if (options.resume) {
    first = answered_rows(options.output_file, rows);
    log::info(concat(options.output_file, ": ", first, " of ", rows.size(), " rows are answered already"));
    if (first == rows.size()) return;
    rows.erase(rows.begin(), rows.begin() + static_cast<int64_t>(first));
  }
  std::ofstream file;
  if (!options.output_file.empty()) {
    file.open(options.output_file, std::ios::app);
    if (!file) throw FormatError(concat(options.output_file, ": cannot be written"));
  }
  std::ostream& out = options.output_file.empty() ? std::cout : file;

  set_up_cpu(options.num_threads);
  const at::Device device = choose_device(options.device);
  set_up_device(device, options.memory_limit, options.tf32);
  const OpenModel opened = open_model(model_config(options), device, options.base);
  if (options.classify) {
    drop_old_answers(options);
    classify(opened, std::move(rows), options, device, out);
    if (!out) throw FormatError("the labels could not be written");
    return;
  }
  if (opened.model->head().scores() != nullptr)
    throw ConfigError(concat("generate: ", options.model,
                             " scores texts and writes none; --classify prints what it gives them"));
  const PromptEncoder encoder(*opened.tokenizer, opened.chat.string(), options);
  GenerationConfig config = opened.generation_config();
  apply(options, config);
  if (const auto end = encoder.end_of_turn(); end && converses(options, encoder, rows))
    config.eos_token_ids.push_back(*end);

  restrict_answers(options, opened, config);
  if (options.scores && config.num_beams == 1)
    throw ConfigError("generate: --scores is for beams: it needs --num-beams above 1");
  drop_old_answers(options);
  if (!options.chat && !options.prompts.empty() && encoder.has_template()) {
    log::info(
        "this model has a chat template, which these prompts do not use: they go to it as they stand; --chat "
        "formats them with it");
  }
  if (!rows.empty()) {
    const std::string input = encoder.input_of(rows.front());
    answer_rows(opened, encoder, config, std::move(rows), first, options, device, out);
    out.flush();
    if (options.save_logits > 0) save_answer_logits(options, opened, input, device);
  } else if (!options.prompts.empty()) {
    answer_prompts(opened, encoder, config, options, device, out);
  } else {
    (options.json ? answer_json : chat)(opened, encoder, config, config.stop_strings, device);
  }
  if (!out) throw FormatError("the answers could not be written");
}

const InLibrary generate_in_library(+[](GenerateOptions& options) {
  translate_torch_errors(kMemoryAdvice, [&] { run_generation(options); });
});

}  // namespace
}  // namespace trainer
