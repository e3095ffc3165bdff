#include "text/tokenizer_json.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/byte_level.h"
#include "text/json_reader.h"

namespace trainer {
namespace {

// Of "ByteLevel" with use_regex (GPT-2).
constexpr const char* kGpt2Split =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Far above any vocabulary; a damaged file must not ask for all memory.
constexpr uint64_t kLargestId = 1 << 24;

[[noreturn]] void refuse_type(const JsonAt& json) {
  json.fail(concat("type '", json.at("type").string(), "' is not supported"));
}

void read_normalizer(const JsonAt& json, bool& nfc) {
  if (json.is_null()) return;
  const std::string type = json.at("type").string();
  if (type == "NFC") {
    nfc = true;
  } else if (type == "Sequence") {
    const JsonAt list = json.at("normalizers");
    for (size_t i = 0; i < list.array().size(); i++) read_normalizer(list.item(i), nfc);
  } else {
    refuse_type(json);
  }
}

void read_split(const JsonAt& json, PreTokenizer& out) {
  json.require_known({"type", "pattern", "behavior", "invert"});
  const JsonAt pattern = json.at("pattern");
  pattern.require_known({"Regex", "String"});
  const bool literal = pattern.value.contains("String");
  const JsonAt text = pattern.at(literal ? "String" : "Regex");
  const std::string behavior = json.at("behavior").string();
  PreTokenizer::Keep keep = PreTokenizer::Keep::all;
  if (behavior == "Removed") {
    keep = json.at("invert").boolean() ? PreTokenizer::Keep::matches : PreTokenizer::Keep::gaps;
  } else if (behavior != "Isolated") {
    json.fail(concat("behavior '", behavior, "' is not supported"));
  }
  out.add_split(literal ? Regex::literal(text.string(), text.where) : Regex(text.string(), text.where), keep);
}

// Words reach BPE as bytes, so ByteLevel has to be there, and nothing may follow it.
void read_pre_tokenizer(const JsonAt& json, PreTokenizer& out, bool& byte_level) {
  if (json.is_null()) json.fail("only tokenizers with a ByteLevel pre_tokenizer are supported");
  if (byte_level) json.fail("a pre_tokenizer behind ByteLevel is not supported");
  const std::string type = json.at("type").string();
  if (type == "Sequence") {
    const JsonAt list = json.at("pretokenizers");
    for (size_t i = 0; i < list.array().size(); i++) read_pre_tokenizer(list.item(i), out, byte_level);
  } else if (type == "Split") {
    read_split(json, out);
  } else if (type == "Digits") {
    json.require_known({"type", "individual_digits"});
    const bool single = json.at("individual_digits").boolean();
    out.add_split(Regex(single ? "\\p{N}" : "\\p{N}+", json.where), PreTokenizer::Keep::all);
  } else if (type == "ByteLevel") {
    json.require_known({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (json.at("add_prefix_space").boolean()) out.add_prefix_space();
    const JsonAt use_regex = json.get("use_regex");  // absent in files older than the key
    if (use_regex.is_null() || use_regex.boolean()) {
      out.add_split(Regex(kGpt2Split, json.where), PreTokenizer::Keep::all);
    }
    byte_level = true;
  } else {
    refuse_type(json);
  }
}

void read_template(const JsonAt& json, TokenizerJson& out) {
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

void read_post_processor(const JsonAt& json, TokenizerJson& out) {
  if (json.is_null()) return;
  const std::string type = json.at("type").string();
  if (type == "ByteLevel") return;  // concerns offsets only
  if (type == "TemplateProcessing") return read_template(json, out);
  if (type != "Sequence") refuse_type(json);
  const JsonAt list = json.at("processors");
  for (size_t i = 0; i < list.array().size(); i++) read_post_processor(list.item(i), out);
}

void check_decoder(const JsonAt& json) {
  if (json.is_null()) json.fail("only tokenizers with a ByteLevel decoder are supported");
  const std::string type = json.at("type").string();
  if (type == "ByteLevel") return;
  if (type != "Sequence") refuse_type(json);
  const JsonAt list = json.at("decoders");
  if (list.array().size() != 1) list.fail("a sequence of several decoders is not supported");
  check_decoder(list.item(0));
}

void read_vocabulary(const JsonAt& json, TokenizerJson& out) {
  if (!json.value.is_object()) json.fail("an object is expected here");
  out.vocabulary.reserve(json.value.size());
  for (const auto& [name, number] : json.value.items()) {
    // Messages cost more than the check: they are put together only when needed.
    const bool valid = number.is_number_unsigned() && number.get<uint64_t>() < kLargestId;
    if (!valid) json.fail(concat("token '", name, "' has no valid id"));
    const auto id = number.get<int32_t>();
    // A vocabulary has hardly any holes; an id far beyond its size would only cost memory.
    if (id >= 16 * static_cast<int64_t>(json.value.size()) + 65536)
      json.fail(concat("the id ", id, " is too large"));
    out.vocabulary.emplace(name, id);
    auto& tokens = out.model.tokens;
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    if (tokens[id]) json.fail(concat("two tokens have the id ", id));
    tokens[id] = byte_level_bytes(name).value_or(name);
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

void read_merges(const JsonAt& json, TokenizerJson& out) {
  const auto& list = json.array();
  out.model.merges.reserve(list.size());
  for (size_t i = 0; i < list.size(); i++) {
    const auto parts = merge_parts(list[i]);
    if (!parts) json.item(i).fail("a pair of tokens is expected here");
    const auto id = [&](const std::string& name) {
      const auto found = out.vocabulary.find(name);
      if (found == out.vocabulary.end())
        json.item(i).fail(concat("token '", name, "' is not in model.vocab"));
      return found->second;
    };
    out.model.merges.push_back({id(parts->first), id(parts->second), id(parts->first + parts->second)});
  }
}

void refuse_unless_empty(const JsonAt& json) {
  if (json.is_null() || json.value == "" || json.value == 0.0 || json.value == false) return;
  json.fail(concat("the value ", json.value.dump(), " is not supported"));
}

void read_model(const JsonAt& json, TokenizerJson& out) {
  const std::string type = json.value.contains("type") ? json.at("type").string() : "BPE";
  if (type == "Unigram") {
    json.fail(
        "type 'Unigram' is not supported in tokenizer.json; add the model's spiece.model to the directory");
  }
  if (type != "BPE") refuse_type(json);
  json.require_known({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                      "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    refuse_unless_empty(json.get(key));
  }
  const auto flag = [&](const char* key) { return !json.get(key).is_null() && json.get(key).boolean(); };
  out.model.fuse_unk = flag("fuse_unk");
  out.model.ignore_merges = flag("ignore_merges");
  read_vocabulary(json.at("vocab"), out);
  read_merges(json.at("merges"), out);
  if (const JsonAt unk = json.get("unk_token"); !unk.is_null()) {
    // Files without an unknown token write "" here; it is asked for only where a byte is no token.
    out.model.unk = out.find(unk.string());
    if (!out.model.unk && !unk.string().empty()) unk.fail("is not in model.vocab");
  }
}

void read_added_tokens(const JsonAt& json, TokenizerJson& out) {
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
  const auto size = static_cast<int32_t>(out.model.tokens.size());
  for (const auto& [id, token] : tokens)
    out.added_tokens.add(token, out.find(token.content), size, id, json.where);
}

}  // namespace

std::optional<int32_t> TokenizerJson::find(std::string_view name) const {
  const auto found = vocabulary.find(std::string(name));
  return found == vocabulary.end() ? std::nullopt : std::optional(found->second);
}

TokenizerJson read_tokenizer_json(const std::filesystem::path& path) {
  const nlohmann::json file = read_json(path);
  const JsonAt json{file, path.string() + ":"};
  // truncation and padding are settings of the last call; the default call overrides them.
  json.require_known({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model"});
  TokenizerJson out;
  read_model(json.at("model"), out);
  if (!json.get("added_tokens").is_null()) read_added_tokens(json.at("added_tokens"), out);
  read_normalizer(json.get("normalizer"), out.nfc);
  bool byte_level = false;
  read_pre_tokenizer(json.get("pre_tokenizer"), out.pre_tokenizer, byte_level);
  if (!byte_level) json.fail("pre_tokenizer: only tokenizers with ByteLevel are supported");
  read_post_processor(json.get("post_processor"), out);
  check_decoder(json.get("decoder"));
  return out;
}

}  // namespace trainer
