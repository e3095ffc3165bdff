// The normalizer, the pre_tokenizer and the decoder of tokenizer.json.
#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/tokenizer/known_splits.h"
#include "text/tokenizer/read_pipeline.h"
#include "text/unicode/unicode.h"

namespace trainer {
std::string decode_base64(const JsonAt& json) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : json.string()) {
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) json.fail("is not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xff));
  }
  return bytes;
}

namespace {

Regex read_pattern(const JsonAt& json) {
  json.require_known({"Regex", "String"});
  if (!json.value.contains("String")) return Regex(json.at("Regex").string(), json.at("Regex").where);
  const JsonAt text = json.at("String");
  if (text.string().empty()) text.fail("an empty pattern is not supported");
  return Regex::literal(text.string());
}

// One character of text, such as "▁".
std::string read_character(const JsonAt& json) {
  std::string text = json.string();
  if (text.empty() || character_length(text, 0) != text.size()) json.fail("one character is expected here");
  return text;
}

SplitBehavior read_behavior(const JsonAt& json) {
  const std::string name = json.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  json.fail(concat("behavior '", name, "' is not supported"));
}

bool flag(const JsonAt& json, const char* key, bool absent) {
  const JsonAt member = json.get(key);
  return member.is_null() ? absent : member.boolean();
}

struct Metaspace {
  std::string replacement;
  PrependScheme scheme;
  bool split;
};

// Older files have add_prefix_space instead of prepend_scheme.
Metaspace read_metaspace(const JsonAt& json) {
  json.require_known({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const bool prefix = flag(json, "add_prefix_space", true);
  PrependScheme scheme = prefix ? PrependScheme::always : PrependScheme::never;
  if (const JsonAt stated = json.get("prepend_scheme"); !stated.is_null()) {
    const std::string name = stated.string();
    if (name != "always" && name != "first" && name != "never")
      stated.fail(concat("'", name, "' is not supported"));
    scheme = name == "always"  ? PrependScheme::always
             : name == "first" ? PrependScheme::first
                               : PrependScheme::never;
    if (!prefix && scheme != PrependScheme::never) stated.fail("contradicts add_prefix_space");
  }
  return {read_character(json.at("replacement")), scheme, flag(json, "split", true)};
}

void read_byte_level(const JsonAt& json, PreTokenizer& out) {
  json.require_known({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (json.at("add_prefix_space").boolean()) out.add_prefix_space();
  if (flag(json, "use_regex", true))  // missing in older files
    out.add_split(Regex(patterns::kGpt2, json.where), SplitBehavior::isolated, false);
}

// No step may follow ByteLevel, because it would see bytes that are written as characters.
void read_pre_tokenizer(const JsonAt& json, PreTokenizer& out, bool& byte_level) {
  if (json.is_null()) return;
  if (byte_level) json.fail("a pre_tokenizer after ByteLevel is not supported");
  const std::string type = json.at("type").string();
  if (type == "Sequence") {
    json.require_known({"type", "pretokenizers"});
    const JsonAt list = json.at("pretokenizers");
    for (size_t i = 0; i < list.array().size(); i++) read_pre_tokenizer(list.item(i), out, byte_level);
  } else if (type == "Split") {
    json.require_known({"type", "pattern", "behavior", "invert"});
    out.add_split(read_pattern(json.at("pattern")), read_behavior(json.at("behavior")),
                  json.at("invert").boolean());
  } else if (type == "Digits") {
    json.require_known({"type", "individual_digits"});
    out.add_split(is_numeric, json.at("individual_digits").boolean() ? SplitBehavior::isolated
                                                                     : SplitBehavior::contiguous);
  } else if (type == "Punctuation") {
    json.require_known({"type", "behavior"});
    const JsonAt behavior = json.get("behavior");
    out.add_split(is_punctuation, behavior.is_null() ? SplitBehavior::isolated : read_behavior(behavior));
  } else if (type == "WhitespaceSplit") {
    json.require_known({"type"});
    out.add_split(is_white_space, SplitBehavior::removed);
  } else if (type == "Whitespace") {
    json.require_known({"type"});
    out.add_whitespace();
  } else if (type == "Metaspace") {
    Metaspace metaspace = read_metaspace(json);
    out.add_metaspace(std::move(metaspace.replacement), metaspace.scheme, metaspace.split);
  } else if (type == "ByteLevel") {
    read_byte_level(json, out);
    byte_level = true;
  } else {
    refuse_type(json);
  }
}

}  // namespace

void refuse_type(const JsonAt& json) {
  json.fail(concat("type '", json.at("type").string(), "' is not supported"));
}

void read_normalizer(const JsonAt& json, Normalizer& out) {
  if (json.is_null()) return;
  const std::string type = json.at("type").string();
  const auto only = [&](std::initializer_list<const char*> keys) { json.require_known(keys); };
  if (type == "Sequence") {
    only({"type", "normalizers"});
    const JsonAt list = json.at("normalizers");
    for (size_t i = 0; i < list.array().size(); i++) read_normalizer(list.item(i), out);
  } else if (type == "NFC") {
    only({"type"});
    out.add(NormalForm::c);
  } else if (type == "NFD") {
    only({"type"});
    out.add(NormalForm::d);
  } else if (type == "NFKC") {
    only({"type"});
    out.add(NormalForm::kc);
  } else if (type == "NFKD") {
    only({"type"});
    out.add(NormalForm::kd);
  } else if (type == "Precompiled") {
    only({"type", "precompiled_charsmap"});
    const JsonAt charsmap = json.at("precompiled_charsmap");
    out.add(Charsmap(decode_base64(charsmap), charsmap.where));
  } else if (type == "Prepend") {
    only({"type", "prepend"});
    out.add_prepend(json.at("prepend").string());
  } else if (type == "Replace") {
    only({"type", "pattern", "content"});
    out.add_replace(read_pattern(json.at("pattern")), json.at("content").string());
  } else if (type == "Strip") {
    only({"type", "strip_left", "strip_right"});
    out.add_strip(json.at("strip_left").boolean(), json.at("strip_right").boolean());
  } else if (type == "Lowercase") {
    only({"type"});
    out.add_lowercase();
  } else if (type == "StripAccents") {
    only({"type"});
    out.add_strip_accents();
  } else {
    refuse_type(json);
  }
}

bool read_pre_tokenizer(const JsonAt& json, PreTokenizer& out) {
  bool byte_level = false;
  read_pre_tokenizer(json, out, byte_level);
  return byte_level;
}

void read_decoder(const JsonAt& json, Decoder& out) {
  if (json.is_null()) return;
  const std::string type = json.at("type").string();
  const auto only = [&](std::initializer_list<const char*> keys) { json.require_known(keys); };
  if (type == "Sequence") {
    only({"type", "decoders"});
    const JsonAt list = json.at("decoders");
    for (size_t i = 0; i < list.array().size(); i++) read_decoder(list.item(i), out);
  } else if (type == "ByteLevel") {
    only({"type", "add_prefix_space", "trim_offsets", "use_regex"});  // for pre-tokenizers of this type
    out.add_byte_level();
  } else if (type == "Metaspace") {
    Metaspace metaspace = read_metaspace(json);
    out.add_metaspace(std::move(metaspace.replacement), metaspace.scheme);
  } else if (type == "Replace") {
    only({"type", "pattern", "content"});
    out.add_replace(read_pattern(json.at("pattern")), json.at("content").string());
  } else if (type == "ByteFallback") {
    only({"type"});
    out.add_byte_fallback();
  } else if (type == "Fuse") {
    only({"type"});
    out.add_fuse();
  } else if (type == "Strip") {
    only({"type", "content", "start", "stop"});
    out.add_strip(read_character(json.at("content")), static_cast<size_t>(json.at("start").id()),
                  static_cast<size_t>(json.at("stop").id()));
  } else {
    refuse_type(json);
  }
}

}  // namespace trainer
