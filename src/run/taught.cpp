// What training teaches besides the weights.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/generation/generation_config.h"

#include "formats/generation_keys.h"
#include "formats/json_file.h"
#include "run/run_parts.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "generation_config.json";

// The end token that is the last of every answer or text.
std::optional<int32_t> learned_end(const Dataset& train, const Tokenizer& tokenizer) {
  if (train.report().layout == DataKind::chat) return train.end_of_answer();
  return tokenizer.eos_id();
}

// The file that is copied, or what Transformers makes of config.json without one.
Json generation_config_of(const fs::path& directory) {
  if (fs::exists(directory / kFile)) return read_ordered_json_object(directory / kFile);
  Json made = Json::object();
  const Json config = read_ordered_json_object(directory / "config.json");
  for (const auto& [key, value] : config.items()) {
    if (is_generation_key(key) && !value.is_null()) made[key] = value;
  }
  return made;
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  return concat(tokenizer.decode({&id, 1}, /*skip_special_tokens=*/false), " (", id, ")");
}

std::string ids_text(const std::vector<int32_t>& ids) {
  std::vector<std::string> texts;
  for (const int32_t id : ids) texts.push_back(std::to_string(id));
  return texts.empty() ? "none" : join(texts, ", ");
}

void add_end(const Tokenizer& tokenizer, int32_t end, const Artefacts& artefacts, Taught& taught) {
  const bool has_own = !artefacts.tokenizer.empty() && fs::exists(artefacts.tokenizer / kFile);
  const fs::path directory = has_own ? artefacts.tokenizer : artefacts.base;
  std::vector<int32_t> ends = end_tokens(directory);
  if (ends.empty()) ends = end_tokens(artefacts.base);
  if (std::ranges::find(ends, end) != ends.end()) return;
  taught.text = concat("answers end with ", token_text(tokenizer, end),
                       ", which is added to eos_token_id of ", kFile, " (the base's: ", ids_text(ends), ")");
  ends.push_back(end);
  Json file = generation_config_of(directory);
  file["eos_token_id"] = ends.size() == 1 ? Json(end) : Json(ends);
  taught.generation_config = std::move(file);
}

}  // namespace

Taught what_is_taught(const Config& config, const Dataset& train, const Tokenizer& tokenizer,
                      const Artefacts& artefacts) {
  Taught taught;
  if (const auto end = learned_end(train, tokenizer)) add_end(tokenizer, *end, artefacts, taught);
  if (!config.data.chat_template.empty() && train.has_chat_template()) {
    taught.chat_template = read_file(config.data.chat_template);
    taught.text += concat(taught.text.empty() ? "" : "; ",
                          "the chat template is that of data.chat_template: ", config.data.chat_template);
  }
  return taught;
}

}  // namespace trainer
