// The head that scores texts and is saved with an adapter.
#include <nlohmann/json.hpp>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

namespace trainer {

std::string score_head_text(const ScoreHeadSpec& head) {
  return nlohmann::json{{"score", static_cast<int>(head.score)},
                        {"labels", head.labels},
                        {"pad_id", head.pad_id},
                        {"encoder_only", head.encoder_only}}
      .dump();
}

std::optional<ScoreHeadSpec> score_head_of(const std::filesystem::path& adapter) {
  const SafetensorsFile file = read_adapter_weights(adapter);
  ScoreHeadSpec head;
  const auto found = file.metadata.find(kScoreHead);
  if (found != file.metadata.end()) {
    const auto said = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
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
