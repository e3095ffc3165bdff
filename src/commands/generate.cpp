// trainer generate: answers prompts, rows of JSON, or a conversation.
#include "trainer/generation/generate.h"

#include <algorithm>
#include <fstream>
#include <iostream>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/oom.h"
#include "trainer/text/answer_text.h"

#include "base/live_lines.h"
#include "base/progress.h"
#include "base/progress_share.h"
#include "commands/library.h"
#include "commands/prompts.h"
#include "memory/set_up_device.h"
#include "run/end_of_run.h"
#include "run/run_model.h"

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
  set(config.num_return_sequences, options.num_return_sequences);
  set(config.length_penalty, options.length_penalty);
  if (options.early_stopping == "true") config.early_stopping = EarlyStopping::yes;
  if (options.early_stopping == "false") config.early_stopping = EarlyStopping::no;
  if (options.early_stopping == "never") config.early_stopping = EarlyStopping::never;
  if (!options.stop.empty()) config.stop_strings = options.stop;
  config.do_sample = options.sample;
  config.seed = static_cast<uint64_t>(options.seed);
}

// Returns the answers as text, in the order of the prompts.
void answer_all(const OpenModel& opened, const std::vector<Tokens>& prompts, const GenerationConfig& config,
                const GenerateOptions& options, at::Device device,
                const std::function<void(size_t, const std::vector<std::string>&)>& deliver) {
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
  const auto deliver_texts = [&](size_t index, const std::vector<Tokens>& answers) {
    std::vector<std::string> texts;
    for (const Tokens& ids : answers) texts.push_back(text.text(ids));
    shown.add();
    const LiveLinesHidden hidden;  // answers may go to the same terminal
    deliver(index, texts);
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
  answer_all(opened, prompts, config, options, device, [&](size_t, const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) out << answer << std::endl;
  });
}

void answer_rows(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
                 std::vector<PlacedRow> rows, const GenerateOptions& options, at::Device device,
                 std::ostream& out) {
  std::vector<Tokens> prompts;
  for (const PlacedRow& row : rows) {
    prompts.push_back(encoder.encode(row));
    warn_of_length(*opened.model, prompts.back(), row.where);
  }
  encoder.warn_of_two_begins(prompts);
  answer_all(opened, prompts, config, options, device,
             [&](size_t index, const std::vector<std::string>& answers) {
               Row row = std::move(rows[index].row);
               if (config.num_return_sequences > 1) {
                 row["predictions"] = answers;
               } else {
                 row["prediction"] = answers.front();
               }
               out << row.dump(-1, ' ', false, Row::error_handler_t::replace) << std::endl;
             });
}

// Returns whether the chat template is used.
bool converses(const GenerateOptions& options, const PromptEncoder& encoder,
               const std::vector<PlacedRow>& rows) {
  return options.chat ||
         std::ranges::any_of(rows, [&](const PlacedRow& row) { return encoder.converses(row.row); });
}

void run_generation(const GenerateOptions& options) {
  std::vector<PlacedRow> rows;
  if (!options.input_file.empty()) rows = read_rows(options.input_file, options.data.cache);
  std::ofstream file;
  if (!options.output_file.empty()) {
    file.open(options.output_file);
    if (!file) throw FormatError(concat(options.output_file, ": cannot be written"));
  }
  std::ostream& out = options.output_file.empty() ? std::cout : file;

  set_up_cpu(options.num_threads);
  const at::Device device = choose_device(options.device);
  set_up_device(device, options.memory_limit, options.tf32);
  const OpenModel opened = open_model(model_config(options), device, options.base);
  const PromptEncoder encoder(*opened.tokenizer, opened.chat.string(), options);
  GenerationConfig config = opened.generation_config();
  apply(options, config);
  if (const auto end = encoder.end_of_turn(); end && converses(options, encoder, rows))
    config.eos_token_ids.push_back(*end);

  if (!options.chat && !options.prompts.empty() && encoder.has_template()) {
    log::info(
        "this model has a chat template, which these prompts do not use: they go to it as they stand; --chat "
        "formats them with it");
  }
  if (!rows.empty()) {
    answer_rows(opened, encoder, config, std::move(rows), options, device, out);
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
