#include "text/tokenizer/read_pipeline.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_tokens.h"
#include "text/tokenizer/qwen2_steps.h"
#include "text/tokenizer/unigram.h"

namespace trainer {
namespace {

void read_template(const JsonAt& json, Pipeline& out) {
  json.require_known({"type", "single", "pair", "special_tokens"});
  const JsonAt single = json.at("single"), special_tokens = json.at("special_tokens");
  std::vector<int32_t> before, behind;
  bool text_seen = false;
  for (size_t i = 0; i < single.array().size(); i++) {
    const JsonAt part = single.item(i);
    part.require_known({"Sequence", "SpecialToken"});
    if (part.value.contains("Sequence")) {
      if (text_seen || part.at("Sequence").at("id").string() != "A")
        part.fail("one Sequence 'A' is expected");
      text_seen = true;
      continue;
    }
    const JsonAt ids = special_tokens.at(part.at("SpecialToken").at("id").string()).at("ids");
    for (size_t j = 0; j < ids.array().size(); j++) (text_seen ? behind : before).push_back(ids.item(j).id());
  }
  if (!text_seen) single.fail("Sequence 'A' is missing");
  out.prefix.insert(out.prefix.begin(), before.begin(), before.end());
  out.suffix.insert(out.suffix.end(), behind.begin(), behind.end());
}

void read_post_processor(const JsonAt& json, Pipeline& out) {
  if (json.is_null()) return;
  const std::string type = json.at("type").string();
  if (type == "ByteLevel") return;  // affects offsets only
  if (type == "TemplateProcessing") return read_template(json, out);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    json.require_known({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});  // the last two: offsets
    out.prefix.insert(out.prefix.begin(), json.at("cls").item(1).id());
    out.suffix.push_back(json.at("sep").item(1).id());
    return;
  }
  if (type != "Sequence") refuse_type(json);
  json.require_known({"type", "processors"});
  const JsonAt list = json.at("processors");
  for (size_t i = 0; i < list.array().size(); i++) read_post_processor(list.item(i), out);
}

// The model's embedding has no row for any other id.
void check_ids(const std::vector<int32_t>& ids, const Pipeline& pipeline, const JsonAt& json) {
  const auto size =
      std::max(static_cast<int32_t>(pipeline.names.size()), pipeline.added_tokens.largest_id() + 1);
  for (const int32_t id : ids) {
    if (id >= size) json.fail(concat("adds the id ", id, ", but there are only ", size, " tokens"));
  }
}

void read_added_tokens(const JsonAt& json, Pipeline& out) {
  std::vector<std::pair<int32_t, AddedToken>> tokens;
  for (size_t i = 0; i < json.array().size(); i++) {
    const JsonAt item = json.item(i);
    item.require_known({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    tokens.emplace_back(item.at("id").id(), AddedToken{.content = item.at("content").string(),
                                                       .special = item.at("special").boolean(),
                                                       .single_word = item.at("single_word").boolean(),
                                                       .lstrip = item.at("lstrip").boolean(),
                                                       .rstrip = item.at("rstrip").boolean(),
                                                       .normalized = item.at("normalized").boolean()});
  }
  std::ranges::stable_sort(tokens, {}, &std::pair<int32_t, AddedToken>::first);
  const auto size = static_cast<int32_t>(out.vocabulary.size());
  for (const auto& [id, token] : tokens)
    out.added_tokens.add(token, out.find(token.content), size, id, json.where);
}

// The model of tokenizer.json: BPE or Unigram.
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

Pipeline read_pipeline(const std::filesystem::path& path, bool as_qwen2) {
  nlohmann::json file = read_json(path);
  if (as_qwen2) put_qwen2_steps(file, path.string());
  const JsonAt json{file, path.string() + ":"};
  // truncation and padding are the settings of an earlier call; the default call overrides them.
  json.require_known({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model"});
  Pipeline out;
  read_normalizer(json.get("normalizer"), out.normalizer);
  const bool byte_level = read_pre_tokenizer(json.get("pre_tokenizer"), out.pre_tokenizer);
  read_model(json.at("model"), byte_level, out);
  read_decoder(json.get("decoder"), out.decoder);
  if (!json.get("added_tokens").is_null()) read_added_tokens(json.at("added_tokens"), out);
  read_post_processor(json.get("post_processor"), out);
  for (const auto* ids : {&out.prefix, &out.suffix}) check_ids(*ids, out, json.get("post_processor"));
  return out;
}

void read_model(const JsonAt& json, bool byte_level, Pipeline& out) {
  // Old files have no type.
  const bool has_type = json.value.is_object() && json.value.contains("type");
  const std::string type = has_type ? json.at("type").string() : "BPE";
  if (type == "BPE") return read_bpe(json, byte_level, out);
  if (type != "Unigram") refuse_type(json);
  if (byte_level) json.fail("Unigram after pre_tokenizer ByteLevel is not supported");
  read_unigram(json, out);
}

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
  out.is_bytes = true;
  add_sentinels(special, where);
  return out;
}

}  // namespace trainer
