#include "trainer/models/score_head.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "formats/text_half.h"

namespace trainer {
namespace {

constexpr const char *kClassifier = "ForSequenceClassification", *kTagger = "ForTokenClassification",
                     *kEncoder = "EncoderModel";

// The families of which Transformers has such a class, and what its name begins with.
constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kFamilies{
    {{"t5", "T5"},
     {"mt5", "MT5"},
     {"umt5", "UMT5"},
     {"gemma", "Gemma"},
     {"gemma2", "Gemma2"},
     {"gemma3_text", "Gemma3Text"},
     {"glm", "Glm"},
     {"glm4", "Glm4"},
     {"helium", "Helium"},
     {"llama", "Llama"},
     {"ministral", "Ministral"},
     {"ministral3", "Ministral3"},
     {"mistral", "Mistral"},
     {"olmo2", "Olmo2"},
     {"olmo3", "Olmo3"},
     {"phi3", "Phi3"},
     {"qwen2", "Qwen2"},
     {"qwen3", "Qwen3"},
     {"qwen3_5_text", "Qwen3_5Text"},
     {"smollm3", "SmolLM3"}}};

// The names by the numbers of the outputs; of a file without names, Transformers' own.
std::vector<std::string> labels_in(const nlohmann::json& config) {
  const auto names = config.find("id2label");
  if (names == config.end() || !names->is_object()) {
    std::vector<std::string> labels;
    for (int64_t i = 0; i < config_size(config, "num_labels", 2); i++) labels.push_back(concat("LABEL_", i));
    return labels;
  }
  std::vector<std::string> labels(names->size());
  for (const auto& [number, name] : names->items()) {
    const bool digits =
        !number.empty() && number.size() < 7 && number.find_first_not_of("0123456789") == std::string::npos;
    const size_t at = digits ? std::stoul(number) : labels.size();
    if (at >= labels.size() || !name.is_string())
      throw FormatError(concat("config.json: id2label: expected names for the numbers from 0 to ",
                               labels.size() - 1, ", found ", number, ": ", name.dump()));
    labels[at] = name;
  }
  return labels;
}

}  // namespace

std::optional<ScoreHeadSpec> score_head_in(const nlohmann::json& config) {
  const auto architectures = config.find("architectures");
  if (architectures == config.end() || !architectures->is_array() || architectures->empty())
    return std::nullopt;
  const std::string name =
      architectures->front().is_string() ? architectures->front().get<std::string>() : "";
  const bool of_encoder = name.ends_with(kEncoder) || name.ends_with(kTagger);
  if (!of_encoder && !name.ends_with(kClassifier)) return std::nullopt;
  ScoreHeadSpec head;
  head.pad_id = config_int(config, "pad_token_id", -1);
  head.encoder_only = of_encoder;
  // Transformers has no classifier on an encoder alone: problem_type says that there is one.
  if (name.ends_with(kEncoder) && config_string(config, "problem_type", "").empty()) {
    head.score = RowScore::vector;
    return head;
  }
  head.labels = labels_in(config);
  if (head.labels.empty()) throw FormatError("config.json: id2label: has no class");
  const std::string problem = config_string(config, "problem_type", "");
  if (problem == "multi_label_classification")
    throw FormatError(
        "config.json: problem_type: multi_label_classification is not supported; only one label a text is");
  if (name.ends_with(kTagger)) {
    head.score = RowScore::tags;
    return head;
  }
  if (head.outputs() == 1) head.score = problem == "regression" ? RowScore::number : RowScore::answer;
  if (head.outputs() > 1 && problem == "regression")
    throw FormatError("config.json: problem_type: regression with several outputs is not supported");
  return head;
}

nlohmann::json score_head_keys(const nlohmann::json& config, const ScoreHeadSpec& head) {
  const std::string type = config.at("model_type");
  const auto family =
      std::ranges::find(kFamilies, type, &std::pair<std::string_view, std::string_view>::first);
  if (family == kFamilies.end() || config.contains(kWholeModelType))
    throw FormatError(concat("config.json: model_type '", type,
                             "' has no class for sequence classification in Transformers, which could load ",
                             "the result; choose another model"));
  const bool of_t5 = family->second.ends_with("T5");
  if (head.encoder_only && !of_t5)
    throw FormatError(concat("config.json: model_type '", type,
                             "' is a decoder and has no encoder; objective.name: token_classification and "
                             "embedding, and model.encoder_only, are for T5 and its family"));
  const char* end = head.score == RowScore::tags ? kTagger : head.encoder_only ? kEncoder : kClassifier;
  nlohmann::json keys{{"architectures", nlohmann::json::array({concat(family->second, end)})},
                      {"id2label", nlohmann::json::object()},
                      {"label2id", nlohmann::json::object()},
                      {"num_labels", nullptr},
                      {"problem_type", nullptr}};
  for (int64_t i = 0; i < head.outputs(); i++) {
    const std::string& label = head.labels[static_cast<size_t>(i)];
    keys["id2label"][std::to_string(i)] = label;
    keys["label2id"][label] = i;
  }
  if (head.score == RowScore::vector) keys["id2label"] = keys["label2id"] = nullptr;
  if (head.score == RowScore::label) keys["problem_type"] = "single_label_classification";
  if (head.score == RowScore::number) keys["problem_type"] = "regression";
  if (head.pad_id >= 0) keys["pad_token_id"] = head.pad_id;
  return keys;
}

bool is_of_score_head(const std::string& tensor) {
  return tensor.starts_with("score.") || tensor.starts_with("classifier.") ||
         tensor.starts_with("classification_head.");
}

}  // namespace trainer
