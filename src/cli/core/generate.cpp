// trainer generate: greedy answers to prompts, or to rows of JSON.
#include "trainer/models/generate.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/cli/core.h"
#include "trainer/memory/device.h"
#include "trainer/models/lora.h"
#include "trainer/text/tokenizer.h"

#include "cli/core/choose_dtype.h"
#include "cli/core/with_clear_errors.h"

namespace trainer {
namespace {

using Row = nlohmann::ordered_json;

// Fields that hold the prompt, in the order they are looked for.
constexpr const char* kPromptFields[] = {"input", "source", "prompt", "instruction", "question", "text"};

std::string prompt_of(const Row& row, const std::string& where) {
  for (const char* field : kPromptFields) {
    if (!row.contains(field)) continue;
    if (!row[field].is_string()) throw DataError(concat(where, ": field '", field, "' is no string"));
    return row[field];
  }
  throw DataError(concat(where, ": none of the fields input, source, prompt, instruction, question, text"));
}

std::vector<Row> read_rows(std::istream& in, const std::string& name) {
  std::vector<Row> rows;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    number++;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Row row = Row::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) throw DataError(concat(name, ":", number, ": is no JSON object"));
    prompt_of(row, concat(name, ":", number));
    rows.push_back(std::move(row));
  }
  if (rows.empty()) throw DataError(concat(name, ": has no rows"));
  return rows;
}

std::vector<Row> read_input(const std::string& file) {
  if (file == "-") return read_rows(std::cin, "stdin");
  std::ifstream in(file);
  if (!in) throw DataError(concat(file, ": cannot be read"));
  return read_rows(in, file);
}

ModelConfig model_config(const GenerateOptions& options) {
  ModelConfig config{options.model, ModelDtype::automatic};
  if (options.dtype == "bf16") config.dtype = ModelDtype::bf16;
  if (options.dtype == "fp32") config.dtype = ModelDtype::fp32;
  return config;
}

class Answerer {
 public:
  explicit Answerer(const GenerateOptions& options) : options_(options), device_(at::kCPU) {
    set_up_cpu(options.num_threads);
    device_ = choose_device(options.device);
    const at::ScalarType dtype = choose_dtype(model_config(options), device_);
    model_ = load_model_or_adapter(options.model, {device_, dtype, /*train_all=*/false});
    const std::filesystem::path base = base_directory(options.model);
    tokenizer_ = load_tokenizer(options.model);
    greedy_ = read_generation_config(base);
    greedy_.max_new_tokens = options.max_new_tokens;
    if (const auto eos = tokenizer_->eos_id()) greedy_.eos_token_ids.push_back(*eos);
  }

  std::vector<std::string> answer(const std::vector<std::string>& prompts) const {
    std::vector<std::vector<int32_t>> inputs;
    for (const std::string& prompt : prompts) {
      inputs.push_back(tokenizer_->encode(prompt, /*add_special_tokens=*/true));
      if (inputs.back().empty()) throw DataError("an empty prompt has no token to start from");
    }
    std::vector<std::string> answers;
    for (auto& sequences : generate(*model_, inputs, greedy_, device_)) {
      Tokens& ids = sequences[0];
      // Embeddings are often padded beyond the vocabulary; an untrained row stands for no text.
      std::erase_if(ids, [&](int32_t id) { return id >= tokenizer_->vocab_size(); });
      answers.push_back(tokenizer_->decode(ids, /*skip_special_tokens=*/true));
    }
    return answers;
  }

 private:
  const GenerateOptions& options_;
  at::Device device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  GenerationConfig greedy_;
};

void answer_rows(const Answerer& answerer, const GenerateOptions& options, std::ostream& out) {
  std::vector<Row> rows = read_input(options.input_file);
  const size_t batch = static_cast<size_t>(std::max<int64_t>(1, options.batch_size));
  for (size_t first = 0; first < rows.size(); first += batch) {
    const size_t last = std::min(rows.size(), first + batch);
    std::vector<std::string> prompts;
    for (size_t i = first; i < last; i++) prompts.push_back(prompt_of(rows[i], options.input_file));
    const std::vector<std::string> answers = answerer.answer(prompts);
    for (size_t i = first; i < last; i++) {
      rows[i]["prediction"] = answers[i - first];
      out << rows[i].dump(-1, ' ', false, Row::error_handler_t::replace) << '\n';
    }
    out.flush();
  }
}

void run_generation(const GenerateOptions& options) {
  std::ofstream file;
  if (!options.output_file.empty()) {
    file.open(options.output_file);
    if (!file) throw FormatError(concat(options.output_file, ": cannot be written"));
  }
  std::ostream& out = options.output_file.empty() ? std::cout : file;
  const Answerer answerer(options);
  for (const std::string& prompt : options.prompts) out << answerer.answer({prompt})[0] << std::endl;
  if (!options.input_file.empty()) answer_rows(answerer, options, out);
  if (!out) throw FormatError("the answers could not be written");
}

}  // namespace
}  // namespace trainer

extern "C" void trainer_core_generate(const trainer::GenerateOptions& options) {
  trainer::with_clear_errors([&] { trainer::run_generation(options); });
}
