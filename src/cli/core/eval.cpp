// trainer eval: what training's evaluation gives, for any model and data.
#include <chrono>
#include <iomanip>
#include <iostream>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/cli/core.h"
#include "trainer/data/dataset.h"
#include "trainer/memory/acquire_device.h"
#include "trainer/memory/device.h"
#include "trainer/memory/limit.h"
#include "trainer/models/generate.h"
#include "trainer/text/answer_text.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/progress.h"

#include "cli/core/open_model.h"
#include "cli/core/with_clear_errors.h"

namespace trainer {
namespace {

// Where the last answer of a sample lies among its labels.
struct AnswerSpan {
  size_t begin, end;
};

AnswerSpan last_answer(const Sample& sample) {
  size_t end = sample.labels.size();
  while (end > 0 && sample.labels[end - 1] == kIgnore) end--;
  size_t begin = end;
  while (begin > 0 && sample.labels[begin - 1] != kIgnore) begin--;
  return {begin, end};
}

// Inputs and the texts that answers are to equal.
struct Questions {
  std::vector<Tokens> prompts;
  std::vector<std::string> targets;
};

Questions questions_of(const Dataset& data, const AnswerText& text) {
  if (data.report().kind == DataKind::text)
    throw ConfigError("--generate: running text (data.kind: text) has no answers to compare with");
  const bool own_targets =
      data.report().kind == DataKind::seq2seq || data.report().kind == DataKind::completion;
  Questions out;
  for (int64_t i = 0; i < data.size(); i++) {
    Sample sample = data.sample(i);
    const AnswerSpan answer = last_answer(sample);
    out.targets.push_back(
        own_targets ? data.texts(i).target
                    : text.text({sample.labels.data() + answer.begin, sample.labels.data() + answer.end}));
    if (!data.encoder_decoder()) sample.input_ids.resize(answer.begin);
    if (sample.input_ids.empty()) throw DataError(data.origin(i) + ": an empty input has no answer");
    out.prompts.push_back(std::move(sample.input_ids));
  }
  return out;
}

int64_t exact_matches(const OpenModel& opened, const Dataset& data, const EvalOptions& options,
                      at::Device device) {
  const AnswerText text(*opened.tokenizer, {});
  const Questions questions = questions_of(data, text);
  GenerationConfig config = opened.generation_config();
  config.num_beams = config.num_return_sequences = 1;
  if (options.max_new_tokens) config.max_new_tokens = *options.max_new_tokens;
  int64_t matches = 0;
  generate_in_batches(*opened.model, questions.prompts, config, device,
                      static_cast<size_t>(options.config.eval_batch_size()), {},
                      [&](size_t index, const std::vector<Tokens>& answers) {
                        if (text.text(answers.front()) == questions.targets[index]) matches++;
                      });
  return matches;
}

using Fields = nlohmann::ordered_json;

void print_text(const Fields& fields, std::ostream& out) {
  for (const auto& [name, value] : fields.items()) {
    out << std::left << std::setw(24) << name;
    if (value.is_string()) {
      out << value.get<std::string>();
    } else if (value.is_number_float()) {
      out << value.get<double>();
    } else {
      out << value.dump();
    }
    out << '\n';
  }
}

void run_evaluation(const EvalOptions& options) {
  const Config& config = options.config;
  const auto begin = std::chrono::steady_clock::now();
  set_up_cpu(config.training.num_threads);
  const DeviceLease lease = acquire_device(config.device, config.gpu);
  const at::Device device = lease.device;
  if (device.is_cuda()) use_tf32(config.training.tf32);
  MemoryLimit::parse(config.memory.limit).apply(device);
  const OpenModel opened = open_model(config.model, device);
  const Dataset data =
      Dataset::open(config.data.eval, config, *opened.tokenizer, opened.model->encoder_decoder());
  for (const std::string& line : data.report().lines()) log::info(line);
  BatchBudget budget;
  const EvaluationResult result = evaluate(*opened.model, data, config, device, budget);
  Fields fields{{"model", config.model.path}, {"data", join(config.data.eval)}};
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const MetricRow row = evaluation_row({}, result, seconds.count());
  for (const auto& [name, value] : row.values.items()) {
    if (name.starts_with("eval_")) fields[name] = value;  // step and epoch are those of a run
  }
  if (options.generate) {
    const int64_t matches = exact_matches(opened, data, options, device);
    fields["eval_exact_match"] = static_cast<double>(matches) / static_cast<double>(data.size());
    fields["eval_exact_matches"] = matches;
  }
  if (options.json) {
    std::cout << fields.dump() << '\n';
  } else {
    print_text(fields, std::cout);
  }
}

}  // namespace
}  // namespace trainer

extern "C" void trainer_core_eval(const trainer::EvalOptions& options) {
  trainer::with_clear_errors(
      "What helps: a smaller training.eval_batch_size (--generate answers so many samples at once); a larger "
      "memory.limit, if the device has it; model.dtype: bf16.",
      [&] { trainer::run_evaluation(options); });
}
