// The head that scores texts and is saved with an adapter.
#include <nlohmann/json.hpp>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

namespace trainer {

namespace {

// What this program has written of the head; null: another one wrote the adapter.
nlohmann::json said_of_head(const SafetensorsFile& file) {
  const auto found = file.metadata.find(kScoreHead);
  if (found == file.metadata.end()) return nullptr;
  return nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

std::string score_head_text(const ScoreHeadSpec& head, int64_t max_length) {
  return nlohmann::json{{"score", static_cast<int>(head.score)},
                        {"labels", head.labels},
                        {"pad_id", head.pad_id},
                        {"encoder_only", head.encoder_only},
                        {"max_length", max_length}}
      .dump();
}

std::optional<int64_t> longest_text_of(const std::filesystem::path& adapter) {
  const nlohmann::json said = said_of_head(read_adapter_weights(adapter));
  const auto length = said.is_object() ? said.find("max_length") : said.end();
  if (length == said.end() || !length->is_number_integer()) return std::nullopt;
  return length->get<int64_t>();
}

std::optional<ScoreHeadSpec> score_head_of(const std::filesystem::path& adapter) {
  const SafetensorsFile file = read_adapter_weights(adapter);
  ScoreHeadSpec head;
  if (const nlohmann::json said = said_of_head(file); !said.is_null()) {
    try {
      head.score = static_cast<RowScore>(said.at("score").get<int>());
      head.labels = said.at("labels").get<std::vector<std::string>>();
      head.pad_id = said.at("pad_id");
      head.encoder_only = said.at("encoder_only");
      return head;
    } catch (const nlohmann::json::exception&) {
      throw FormatError(concat(adapter.string(), "/adapter_model.safetensors: its metadata \"", kScoreHead,
                               "\" is damaged"));
    }
  }
  for (const char* name : {"score.weight", "classification_head.out_proj.weight"}) {
    const auto weight = file.tensors.find(name);
    if (weight == file.tensors.end()) continue;
    const int64_t outputs = weight->second.shape.at(0);
    head.score = outputs == 1 ? RowScore::answer : RowScore::label;
    for (int64_t i = 0; i < outputs; i++) head.labels.push_back(concat("LABEL_", i));
    return head;
  }
  return std::nullopt;
}

}  // namespace trainer
