#include "text/tokenizer/byte_pipeline.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace {

constexpr int32_t kFirstByte = 3;  // behind <pad>, </s> and <unk>

class Bytes final : public WordModel {
 public:
  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    for (const char byte : word) ids.push_back(kFirstByte + static_cast<unsigned char>(byte));
  }
};

bool names_class(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return false;
  const nlohmann::json json = read_json(file);
  if (!json.is_object()) return false;
  const auto name = json.find("tokenizer_class");
  return name != json.end() && (*name == "ByT5Tokenizer" || *name == "ByT5TokenizerFast");
}

// A token that the files do not name takes the white space around it, as in ByT5Tokenizer.
void name_token(SpecialTokens& special, std::optional<std::string>& name, const char* key,
                const char* standard) {
  if (name) return;
  name = standard;
  special.named.push_back({.content = standard, .special = true, .lstrip = true, .rstrip = true});
  special.by_name.emplace(key, standard);
}

void add_sentinels(SpecialTokens& special, const std::string& where) {
  const int64_t count = special.extra_ids.value_or(125);
  const auto listed = std::ranges::count_if(special.additional, [](const AddedToken& token) {
    return token.content.find("extra_id") != std::string::npos;
  });
  if (!special.added.empty()) return;  // added_tokens_decoder has them with their ids
  if (special.additional.empty()) {
    for (int64_t i = 0; i < count; i++)
      special.additional.push_back({.content = concat("<extra_id_", i, ">"), .special = true});
  } else if (count > 0 && listed != count) {
    throw FormatError(concat(where, ": extra_ids is ", count, ", but the list of special tokens has ", listed,
                             " tokens <extra_id_N>; make both the same, as ByT5Tokenizer needs them"));
  }
}

}  // namespace

bool is_byte_tokenizer(const std::filesystem::path& directory) {
  return names_class(directory / "tokenizer_config.json") || names_class(directory / "config.json");
}

Pipeline byte_pipeline(SpecialTokens& special, const std::string& where) {
  Pipeline out;
  name_token(special, special.pad, "pad_token", "<pad>");
  name_token(special, special.eos, "eos_token", "</s>");
  name_token(special, special.unk, "unk_token", "<unk>");
  for (const auto& name : {special.pad, special.eos, special.unk}) out.names.push_back(*name);
  for (int byte = 0; byte < 256; byte++) out.names.push_back(std::string(1, static_cast<char>(byte)));
  for (size_t id = 0; id < out.names.size(); id++)
    out.vocabulary.emplace(*out.names[id], static_cast<int32_t>(id));
  out.unk = 2;
  out.model = std::make_unique<Bytes>();
  out.decoder.add_bytes();
  out.suffix_once = true;
  add_sentinels(special, where);
  return out;
}

}  // namespace trainer
