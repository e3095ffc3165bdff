#include "trainer/training/predictions.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/generation/generate.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/oom.h"
#include "trainer/text/answer_text.h"
#include "trainer/text/metrics.h"

#include "base/progress.h"
#include "base/progress_share.h"
#include "base/text.h"
#include "training/placement.h"

namespace trainer {
namespace {

// Returns this many samples, spread evenly, because data are often sorted.
std::vector<int64_t> spread(int64_t size, int64_t limit) {
  const int64_t count = limit == 0 ? size : std::min(limit, size);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; i++) indices.push_back(i * size / count);
  return indices;
}

GenerationConfig resolved(GenerationConfig generation, const Config& all, const Dataset& data) {
  const EvaluationConfig& config = all.evaluation;
  const double longest = static_cast<double>(data.report().target.longest);
  generation.max_new_tokens =
      config.max_new_tokens.value_or(std::max<int64_t>(1, std::llround(std::ceil(1.5 * longest))));
  generation.max_length = 0;  // of other prompts
  generation.num_beams = config.num_beams;
  generation.num_return_sequences = 1;
  generation.do_sample = false;
  if (!all.data.packing.is_automatic()) generation.packing = all.data.packs();
  if (const auto end = data.end_of_answer()) generation.eos_token_ids.push_back(*end);
  return generation;
}

RetryOptions retry_options(const RecoveryConfig& config, c10::Device device) {
  RetryOptions options;
  options.device = device;
  options.max_retries = config.max_retries;
  options.on_retry = [](const OutOfMemory& oom, int64_t size) {
    log::warning(concat("out of memory with so many answers at once (", oom.numbers(), "); from here on ",
                        size, " at once"));
  };
  return options;
}

// The question of a chat is at the end of its prompt, and what a T5 is asked to do at the beginning: of a
// long input, both ends are shown.
std::string both_ends(const std::string& input, size_t characters) {
  const std::string text = one_line(input, input.size());
  std::vector<size_t> starts;  // of the characters
  for (size_t i = 0; i < text.size(); i++) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) starts.push_back(i);
  }
  if (starts.size() <= characters) return text;
  const size_t first = characters / 4, last = characters - first - 3;
  return concat(text.substr(0, starts[first]), " … ", text.substr(starts[starts.size() - last]));
}

}  // namespace

Predictor::Predictor(const Dataset& data, const Tokenizer& tokenizer, const Config& config,
                     GenerationConfig generation, int64_t max_samples)
    : data_(data),
      tokenizer_(tokenizer),
      metrics_(config.evaluation.metrics),
      skip_special_tokens_(config.evaluation.skip_special_tokens),
      generation_(resolved(std::move(generation), config, data)),
      recovery_(config.recovery),
      samples_(spread(data.size(), config.evaluation.max_samples.value_or(max_samples))),
      batch_size_(std::min(config.generation_batch_size(), std::ssize(samples_))) {
  if (data.report().kind == DataKind::text) {
    throw ConfigError(
        "evaluation.generate: running text (data.kind: text) has no targets to compare answers with");
  }
  for (size_t place = 0; place < samples_.size(); place++) {
    prompts_.push_back({place, data.prompt(samples_[place])});
    if (prompts_.back().tokens.empty())
      throw DataError(concat(data.origin(samples_[place]), ": an empty input has no answer"));
  }
  std::ranges::stable_sort(prompts_, std::greater{}, [](const Prompt& p) { return p.tokens.size(); });
}

// Every rank takes each of as many prompts as there are ranks, so that all have long and short ones.
std::vector<Predictor::Prompt> Predictor::prompts_of(const Ranks& ranks) const {
  std::vector<Prompt> own;
  for (size_t i = static_cast<size_t>(ranks.rank()); i < prompts_.size();
       i += static_cast<size_t>(ranks.count()))
    own.push_back(prompts_[i]);
  return own;
}

// Returns the answers of this rank as a note for all: [[place, text, tokens], ...].
std::string Predictor::answer(const Model& model, c10::Device device, const std::function<void()>& between,
                              const Ranks& ranks) {
  const AnswerText text(tokenizer_, generation_.stop_strings, generation_.eos_token_ids);
  GenerationHooks hooks;
  if (!generation_.stop_strings.empty()) hooks.stop = [&](const Tokens& ids) { return text.stops_at(ids); };
  const std::vector<Prompt> prompts = prompts_of(ranks);
  nlohmann::json note = nlohmann::json::array();
  Progress shown("answers", std::ssize(prompts));
  hooks.on_progress = [&](double answered) {
    set_share(shown, answered / static_cast<double>(prompts.size()));
  };
  OomHandler handler(batch_size_, retry_options(recovery_, device), /*minimum=*/1, recovery_.grow_after);
  handler.set_budget(budget_);
  std::vector<Tokens> inputs;
  for (const Prompt& prompt : prompts) inputs.push_back(prompt.tokens);
  generate_in_batches(model, inputs, generation_, device, handler, hooks,
                      [&](size_t i, const std::vector<Tokens>& answers) {
                        const std::string said = text.text(answers.front(), skip_special_tokens_);
                        note.push_back({prompts[i].place, said, std::ssize(answers.front())});
                        shown.set(static_cast<int64_t>(i) + 1);
                        if (between) between();
                      });
  budget_ = handler.budget();
  empty_cache(device);  // KV caches will have another size next time
  return note.dump();
}

Predictions Predictor::predict(const Model& model, c10::Device device, const std::function<void()>& between,
                               const Ranks& ranks) {
  const auto begin = std::chrono::steady_clock::now();
  Predictions out;
  std::vector<std::string> given;  // the targets of the data
  for (const int64_t sample : samples_) {
    const Dataset::Texts texts = data_.texts(sample);
    out.rows.push_back({data_.origin(sample), texts.input,
                        AnswerText(tokenizer_, {}).as_answer(texts.target, skip_special_tokens_), ""});
    given.push_back(texts.target);
  }
  int64_t tokens = 0;
  for (const std::string& note : run_on_all_ranks(
           model, ranks, [&] { return answer(model, device, between, ranks); }, Channel::phases)) {
    for (const nlohmann::json& answered : nlohmann::json::parse(note)) {
      out.rows.at(answered.at(0).get<size_t>()).prediction = answered.at(1).get<std::string>();
      tokens += answered.at(2).get<int64_t>();
    }
  }
  TextMetrics metrics(metrics_);
  for (size_t i = 0; i < out.rows.size(); i++)
    metrics.add(out.rows[i].prediction, out.rows[i].target, given[i]);
  out.scores = metrics.values();
  out.mean_tokens = static_cast<double>(tokens) / static_cast<double>(out.rows.size());
  out.seconds = seconds_since(begin);
  return out;
}

std::vector<std::string> Predictions::lines(int64_t count) const {
  constexpr size_t kWidth = 150;
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(rows.size(), static_cast<size_t>(count)); i++) {
    out.push_back("  input       " + both_ends(rows[i].input, kWidth));
    out.push_back("  target      " + one_line(rows[i].target, kWidth));
    out.push_back("  prediction  " + one_line(rows[i].prediction, kWidth));
  }
  return out;
}

void Predictions::write(const std::filesystem::path& file) const {
  write_atomically(file, [&](std::ostream& out) {
    for (const Prediction& row : rows) {
      const nlohmann::ordered_json fields{{"origin", row.origin},
                                          {"input", row.input},
                                          {"target", row.target},
                                          {"prediction", row.prediction}};
      out << fields.dump() << '\n';
    }
  });
}

}  // namespace trainer
