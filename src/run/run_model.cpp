#include "run/run_model.h"

#include <algorithm>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/models/load_model.h"
#include "trainer/text/chat_template.h"

#include "base/progress.h"
#include "base/text.h"
#include "config/weight_formats.h"
#include "hub/name.h"
#include "training/prepare_model.h"
#include "weights/weight_format.h"

namespace trainer {
namespace {

// Rounding to few bits costs a small model more than a large one.
void warn_of_small_model(Model& model, const WeightFormatName& format) {
  constexpr int64_t kSmall = 3'000'000'000;
  int64_t parameters = 0;
  model.for_each_parameter(
      [&](const std::string&, Parameter& parameter) { parameters += parameter.numel(); });
  if (parameters >= kSmall) return;
  log::warning(
      concat("model.quantize: ", format.name, ": this model has ", grouped(parameters),
             " parameters; below some 3 billion, weights in ", format.bits,
             " bits cost much of its quality. If memory ",
             "allows it, train without quantisation, and compare the evaluation (docs/quantization.md)"));
}

// An adapter has learnt beside the errors of its base's weights.
void warn_of_other_weights(const std::string& adapter, const WeightFormatName* now) {
  const auto before = quantisation_in_training(adapter);
  if (!before || (now != nullptr && now->name == before->format)) return;
  const WeightFormatName& format = weight_format(before->format).name();
  log::warning(concat("lora.adapter: ", adapter, " was trained on ", format.title,
                      " weights, and goes on with ", now != nullptr ? now->title : "unquantised",
                      " ones; model.quantize=", format.name, " keeps those that it has learnt on"));
}

// An adapter that is trained further may bring a tokenizer with more tokens than its base model's.
std::filesystem::path tokenizer_directory(const Config& config) {
  if (config.lora && !config.lora->adapter.empty()) {
    const std::filesystem::path adapter = config.lora->adapter;
    if (has_tokenizer(adapter)) return adapter;
  }
  return config.model.path;
}

// A model of the hub by its name and commit, as PEFT does.
void name_base(const std::filesystem::path& path, AdapterConfig& adapter) {
  const auto name = hub::name_of(path);
  adapter.base_model_name_or_path =
      name ? name->id : std::filesystem::absolute(path).lexically_normal().string();
  adapter.revision = name ? name->revision : "";
}

// The types in which the tensors came that the run will save.
std::map<std::string, Dtype> types_that_came(const Config& config, const LoadReport& report) {
  if (!config.lora) return report.stored;
  std::map<std::string, Dtype> types;
  if (config.lora->adapter.empty()) return types;
  for (const auto& [name, view] : read_adapter_weights(config.lora->adapter).tensors)
    types[name] = view.dtype;
  return types;
}

// Returns whether all weights of the file are bf16 or fp32. Then a computation in fp32 can leave them in the
// file: bf16 is widened exactly while it is multiplied, which reads half as much.
bool widens_exactly(const std::filesystem::path& model) {
  const ModelWeights weights = read_model_weights(model);
  return std::ranges::all_of(weights.tensors, [](const auto& tensor) {
    return tensor.second.dtype == Dtype::bf16 || tensor.second.dtype == Dtype::f32;
  });
}

// A head that scores texts teaches nothing to write.
void refuse_other_head(const Model& model, const Config& config) {
  if (model.head().scores() == nullptr || config.objective.row_score() != RowScore::none) return;
  throw ConfigError(
      concat("model.path: ", config.model.path,
             " scores texts (ForSequenceClassification) and writes none, and objective.name is ",
             config.objective.name, "; set it to classification, regression or reward"));
}

// The adapter that is trained further; "": a new one begins.
std::string adapter_of(const Config& config) { return config.lora ? config.lora->adapter : ""; }

// PEFT's files do not name the classes: those of a base that is a classifier are theirs.
std::optional<ScoreHeadSpec> head_of_adapter(const Config& config) {
  std::optional<ScoreHeadSpec> head = score_head_of(adapter_of(config));
  const auto base = score_head_in(read_model_config(config.model.path));
  if (head && base && !head->is_named() && head->outputs() == base->outputs()) head->labels = base->labels;
  return head;
}

// An output learned what it is called; under another name it would be wrong, and nothing would show it.
void refuse_other_classes(const Config& config, const ScoreHeadSpec& head) {
  const std::vector<std::string>& asked = config.objective.labels;
  const bool fit = head.is_named() ? asked == head.labels : std::ssize(asked) == head.outputs();
  if (asked.empty() || fit) return;
  throw ConfigError(concat("lora.adapter: ", hub::shown(adapter_of(config)), " has the ", head.outputs(),
                           " classes ", join_some(head.labels, 10), ", and objective.labels names ",
                           join_some(asked, 10),
                           "; leave objective.labels out to go on with the adapter's, or leave lora.adapter "
                           "out to begin anew"));
}

std::string line_of_head(const Config& config, const ScoreHeadSpec& head, bool is_new) {
  const std::string adapter = adapter_of(config);
  const bool of_adapter = !adapter.empty() && score_head_of(adapter);
  return concat(
      of_adapter ? concat("the head is that of the adapter ", hub::shown(adapter))
      : is_new   ? "the head begins anew"
                 : concat("the head is that of ", hub::shown(config.model.path)),
      ", with ",
      head.outputs() == 1 ? "1 output" : concat(head.outputs(), " classes: ", join_some(head.labels)));
}

}  // namespace

std::string objective_of(RowScore score) {
  switch (score) {
    case RowScore::label:
      return "classification";
    case RowScore::number:
      return "regression";
    case RowScore::answer:
      return "reward";
    case RowScore::tags:
      return "token_classification";
    case RowScore::vector:
      return "embedding";
    case RowScore::none:
      break;
  }
  return "sft";
}

void settle_head(Config& config) {
  const RowScore score = config.objective.row_score();
  if (score == RowScore::none || is_adapter_directory(config.model.path)) return;
  const bool goes_on = !adapter_of(config).empty();
  const auto head = goes_on ? head_of_adapter(config) : score_head_in(read_model_config(config.model.path));
  if (!head) return;
  if (head->encoder_only && score == RowScore::answer)
    throw ConfigError(concat("model.path: ", config.model.path,
                             " is an encoder alone, and objective.name: reward needs a decoder, or a T5 with "
                             "both halves"));
  config.model.encoder_only = config.model.encoder_only || head->encoder_only;
  if (head->score != score || !has_classes(score)) return;
  if (goes_on) refuse_other_classes(config, *head);
  if (config.objective.labels.empty()) config.data.labels.classes = head->labels;
}

std::unique_ptr<Tokenizer> load_run_tokenizer(const Config& config) {
  const Progress shown("reading the tokenizer");
  auto tokenizer = load_tokenizer(tokenizer_directory(config));
  if (!config.model.add_tokens.empty()) tokenizer->add_tokens(config.model.add_tokens);
  return tokenizer;
}

Prepared prepare_model(const Config& config, const Tokenizer& tokenizer, at::Device device,
                       const Ranks& ranks) {
  if (is_adapter_directory(config.model.path)) {
    throw ConfigError(concat("model.path: ", config.model.path,
                             " is an adapter; give its base model there and the adapter as "
                             "lora.adapter"));
  }
  const Progress shown("loading the model");
  verify_model_files(config.model.path);
  if (config.lora && !config.lora->adapter.empty()) verify_model_files(config.lora->adapter);
  Prepared out;
  std::optional<ScoreHeadSpec> head = score_head_for(config);
  if (head) {
    const auto pad = tokenizer.pad_id() ? tokenizer.pad_id() : tokenizer.eos_id();
    head->pad_id = pad.value_or(-1);
  }
  LoadReport report;
  const at::ScalarType dtype = choose_dtype(config.model, device);
  LoadOptions options{device, dtype, /*train_all=*/!config.lora, quantisation_of(config),
                      config.memory.offload.weights};
  options.head = head;
  if (shards_weights(config, ranks.count())) {
    options.rank = ranks.rank();
    options.ranks = ranks.count();
  }
  out.model = load_model(config.model.path, options, &report);
  out.artefacts.came_as = types_that_came(config, report);
  refuse_other_head(*out.model, config);
  log::info(report.line());
  if (head && head->outputs() > 0) log::info(line_of_head(config, *head, report.new_head));
  log::debug(report.details());
  if (report.format != nullptr && report.format->bits <= 4) warn_of_small_model(*out.model, *report.format);
  if (report.format != nullptr) {
    const std::string said = weight_format(report.format->name).said_on(device);
    if (!said.empty()) log::info(said);
  }
  if (config.lora && !config.lora->adapter.empty())
    warn_of_other_weights(config.lora->adapter, report.format);
  if (!report.ignored.empty()) log::info("weights: ignored as superfluous: " + join_some(report.ignored));
  log::debug("no KV cache is made in training, whatever use_cache in config.json says");
  out.artefacts.base = config.model.path;
  out.artefacts.max_length = config.data.max_length;
  out.artefacts.tokenizer = tokenizer_directory(config);
  out.artefacts.added_tokens = config.model.add_tokens;
  if (options.quantise) out.artefacts.trained_on = trained_on(*options.quantise);
  const int64_t before = out.model->vocab_size();
  out.artefacts.adapter = prepare_for_training(*out.model, config, tokenizer.vocab_size(), device);
  if (out.model->vocab_size() != before) {
    log::info(concat("vocabulary: ", before, " -> ", out.model->vocab_size(),
                     " rows; the new ones are the mean of the others"));
  }
  if (out.artefacts.adapter) {
    name_base(config.model.path, *out.artefacts.adapter);
  }
  return out;
}

GenerationConfig generation_config(const std::filesystem::path& model_directory, const Tokenizer& tokenizer,
                                   const Model& model, const std::filesystem::path& adapter) {
  GenerationConfig config = read_generation_config(model_directory, model.vocab_size(), adapter);
  const auto eos = tokenizer.eos_id();
  std::vector<int32_t>& ends = config.eos_token_ids;
  if (eos && std::ranges::find(ends, *eos) == ends.end()) ends.push_back(*eos);
  return config;
}

OpenModel open_model(const ModelConfig& config, at::Device device, const std::filesystem::path& base) {
  OpenModel out;
  out.base = base_directory(config.path, base);
  const Progress shown("loading the model");
  verify_model_files(config.path);
  if (out.base != config.path) {
    verify_model_files(out.base);
    out.adapter = config.path;
  }
  out.chat = has_chat_template(config.path) ? std::filesystem::path(config.path) : out.base;
  out.tokenizer = load_tokenizer(has_tokenizer(config.path) ? std::filesystem::path(config.path) : out.base);
  LoadReport report;
  LoadOptions options{device, choose_dtype(config, device), /*train_all=*/false};
  if (config.quantises())
    options.quantise = Quantisation{.double_quant = config.double_quant, .format = config.quantize};
  if (device.is_cpu() && options.dtype == at::kFloat && !options.quantise && widens_exactly(out.base))
    options.dtype = at::ScalarType::Undefined;
  out.model = load_model_or_adapter(config.path, options, &report, out.base);
  log::debug(report.line());
  check_vocabulary(*out.tokenizer, *out.model, config.path);
  return out;
}

void check_vocabulary(const Tokenizer& tokenizer, const Model& model, const std::string& path) {
  if (tokenizer.vocab_size() > model.vocab_size()) {
    throw FormatError(concat(path, ": the tokenizer gives ids up to ", tokenizer.vocab_size() - 1,
                             ", but the embedding has ", model.vocab_size(),
                             " rows; use the tokenizer that was saved with this model"));
  }
}

at::ScalarType choose_dtype(const ModelConfig& config, at::Device device) {
  if (config.dtype == ModelDtype::fp32) return at::kFloat;
  if (config.dtype == ModelDtype::automatic)
    return computes_in_bf16(device) ? automatic_dtype(device) : at::kFloat;
  if (!computes_in_bf16(device)) {
    throw of_family(ErrorCode::no_bf16,
                    DeviceError(concat(
                        "model.dtype: bf16: ", device.str(),
                        " does not compute in bf16 (it needs compute capability 8.0, Ampere or newer); use "
                        "model.dtype=fp32")));
  }
  return at::kBFloat16;
}

}  // namespace trainer
