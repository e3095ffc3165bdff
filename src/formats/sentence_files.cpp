#include "formats/sentence_files.h"

#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/files.h"

#include "formats/json_file.h"

namespace trainer {

static constexpr const char* kSentenceFile = "sentence_bert_config.json";

void write_sentence_files(const std::filesystem::path& directory, int64_t size, int64_t max_length) {
  using Json = nlohmann::ordered_json;
  Json modules = Json::array();
  const auto add = [&](const char* path, const char* type) {
    const std::string number = std::to_string(modules.size());
    modules.push_back({{"idx", modules.size()},
                       {"name", number},
                       {"path", path},
                       {"type", std::string("sentence_transformers.models.") + type}});
  };
  add("", "Transformer");
  add("1_Pooling", "Pooling");
  add("2_Normalize", "Normalize");
  make_directories(directory / "1_Pooling");
  make_directories(directory / "2_Normalize");
  write_json(directory / "1_Pooling" / "config.json",
             Json{{"word_embedding_dimension", size}, {"pooling_mode_mean_tokens", true}});
  write_json(directory / kSentenceFile, Json{{"max_seq_length", max_length}, {"do_lower_case", false}});
  write_json(directory / "modules.json", modules);  // last: it is what makes the directory one of them
}

std::optional<int64_t> longest_sentence(const std::filesystem::path& directory) {
  if (!std::filesystem::exists(directory / kSentenceFile)) return std::nullopt;
  const nlohmann::json file = read_json_object(directory / kSentenceFile);
  const auto length = file.find("max_seq_length");
  if (length == file.end() || !length->is_number_integer()) return std::nullopt;  // null: no limit
  return length->get<int64_t>();
}

}  // namespace trainer
