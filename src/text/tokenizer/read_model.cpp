// The model of tokenizer.json: BPE or Unigram.
#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/read_pipeline.h"
#include "text/tokenizer/unigram.h"

namespace trainer {
namespace {

// Far above any vocabulary. A damaged file must not use up all memory.
constexpr uint64_t kLargestId = 1 << 24;

void read_vocabulary(const JsonAt& json, Pipeline& out) {
  if (!json.value.is_object()) json.fail("an object is expected here");
  out.vocabulary.reserve(json.value.size());
  for (const auto& [name, number] : json.value.items()) {
    // A message costs more than the check, so it is made only when needed.
    const bool valid = number.is_number_unsigned() && number.get<uint64_t>() < kLargestId;
    if (!valid) json.fail(concat("token '", name, "' has no valid id"));
    const auto id = number.get<int32_t>();
    // A vocabulary has few unused ids; an id far beyond its size would only cost memory.
    if (id >= 16 * static_cast<int64_t>(json.value.size()) + 65536)
      json.fail(concat("the id ", id, " is too large"));
    out.vocabulary.emplace(name, id);
    if (static_cast<size_t>(id) >= out.names.size()) out.names.resize(static_cast<size_t>(id) + 1);
    if (out.names[id]) json.fail(concat("two tokens have the id ", id));
    out.names[id] = name;
  }
}

// A merge is written "a b" or ["a", "b"].
std::optional<std::pair<std::string, std::string>> merge_parts(const nlohmann::json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (!merge.is_string()) return std::nullopt;
  const auto& text = merge.get_ref<const std::string&>();
  const size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) return std::nullopt;
  return std::pair(text.substr(0, blank), text.substr(blank + 1));
}

std::vector<BpeModel::Merge> read_merges(const JsonAt& json, const Pipeline& out) {
  std::vector<BpeModel::Merge> merges;
  const auto& list = json.array();
  merges.reserve(list.size());
  for (size_t i = 0; i < list.size(); i++) {
    const auto parts = merge_parts(list[i]);
    if (!parts) json.item(i).fail("a pair of tokens is expected here");
    const auto id = [&](const std::string& name) {
      const auto found = out.vocabulary.find(name);
      if (found == out.vocabulary.end())
        json.item(i).fail(concat("token '", name, "' is not in model.vocab"));
      return found->second;
    };
    merges.push_back({id(parts->first), id(parts->second), id(parts->first + parts->second)});
  }
  return merges;
}

void refuse_unless_empty(const JsonAt& json) {
  if (json.is_null() || json.value == "" || json.value == 0.0 || json.value == false) return;
  json.fail(concat("the value ", json.value.dump(), " is not supported"));
}

bool flag(const JsonAt& json, const char* key) { return !json.get(key).is_null() && json.get(key).boolean(); }

bool has_all_bytes(const BpeModel& model) {
  const auto bytes =
      std::ranges::count_if(model.tokens, [](const auto& token) { return token && token->size() == 1; });
  return bytes == 256;
}

void read_bpe(const JsonAt& json, bool byte_level, Pipeline& out) {
  json.require_known({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                      "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    refuse_unless_empty(json.get(key));
  read_vocabulary(json.at("vocab"), out);
  BpeModel model;
  model.merges = read_merges(json.at("merges"), out);
  model.fuse_unk = flag(json, "fuse_unk");
  model.ignore_merges = flag(json, "ignore_merges");
  model.byte_fallback = flag(json, "byte_fallback");
  model.byte_level = byte_level;
  model.tokens = out.names;
  if (byte_level) {
    for (auto& token : model.tokens) {
      if (token) token = byte_level_bytes(*token);
    }
  }
  // A vocabulary with all bytes has no unknown text.
  const bool complete = byte_level && has_all_bytes(model);
  if (byte_level && model.byte_fallback && !complete)
    json.at("byte_fallback")
        .fail("is not supported if pre_tokenizer is ByteLevel and the vocabulary lacks some bytes");
  // Files without an unknown token may write "" here.
  if (const JsonAt unk = json.get("unk_token"); !unk.is_null() && !unk.string().empty()) {
    model.unk = out.unk = out.find(unk.string());
    if (!model.unk && !complete) unk.fail(concat("'", unk.string(), "' is not in model.vocab"));
  }
  out.model = std::make_unique<Bpe>(model);
}

void read_unigram(const JsonAt& json, Pipeline& out) {
  json.require_known({"type", "unk_id", "vocab", "byte_fallback"});
  const JsonAt vocab = json.at("vocab");
  UnigramModel model;
  for (const nlohmann::json& entry : vocab.array()) {
    const bool is_piece =
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    const size_t id = model.pieces.size();
    if (!is_piece) vocab.item(id).fail("a piece and its score are expected here");
    model.pieces.push_back({entry[0].get<std::string>(), entry[1].get<double>()});
    out.names.push_back(model.pieces.back().text);
    out.vocabulary.insert_or_assign(model.pieces.back().text, static_cast<int32_t>(id));
  }
  if (const JsonAt unk = json.get("unk_id"); !unk.is_null()) {
    model.unk = out.unk = unk.id();
    if (static_cast<size_t>(*model.unk) >= model.pieces.size()) unk.fail("is not in model.vocab");
  }
  model.byte_fallback = flag(json, "byte_fallback");
  out.model = std::make_unique<Unigram>(model);
}

}  // namespace

void read_model(const JsonAt& json, bool byte_level, Pipeline& out) {
  // Old files have no type.
  const bool has_type = json.value.is_object() && json.value.contains("type");
  const std::string type = has_type ? json.at("type").string() : "BPE";
  if (type == "BPE") return read_bpe(json, byte_level, out);
  if (type != "Unigram") refuse_type(json);
  if (byte_level) json.fail("Unigram after pre_tokenizer ByteLevel is not supported");
  read_unigram(json, out);
}

}  // namespace trainer
