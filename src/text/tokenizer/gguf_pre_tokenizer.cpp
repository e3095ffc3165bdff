#include "text/tokenizer/gguf_pre_tokenizer.h"

#include <optional>
#include <string_view>

#include "trainer/base/strings.h"

#include "text/tokenizer/known_splits.h"

namespace trainer {
namespace {

using nlohmann::json;

struct Split {
  std::string_view pattern;
  bool ignore_merges;
  const char* name;
};

// Patterns of a Split before ByteLevel. A name also says whether a word that is a token is taken before any
// merge.
constexpr Split kSplits[]{
    {patterns::kQwen2, false, "qwen2"},
    {patterns::kLlama3, true, "llama-bpe"},
    {patterns::kLlama3, false, "smaug-bpe"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, "tekken"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, "gpt-4o"},
};

bool flag_or(const json& step, const char* key, bool fallback) {
  const auto found = step.find(key);
  return found == step.end() || !found->is_boolean() ? fallback : found->get<bool>();
}

bool is_byte_level(const json& step, bool with_pattern) {
  return step.value("type", "") == "ByteLevel" && !flag_or(step, "add_prefix_space", true) &&
         flag_or(step, "use_regex", true) == with_pattern;
}

// Of the only step, or the two of a Sequence.
std::optional<std::string> name_of(const json& pre_tokenizer, bool ignore_merges) {
  json steps = json::array({pre_tokenizer});
  if (pre_tokenizer.value("type", "") == "Sequence")
    steps = pre_tokenizer.value("pretokenizers", json::array());
  for (const json& step : steps) {
    if (!step.is_object()) return std::nullopt;
  }
  if (steps.size() == 1 && !ignore_merges && is_byte_level(steps[0], true)) return "gpt-2";
  if (steps.size() != 2) return std::nullopt;
  if (steps[0].value("type", "") == "Digits") {
    const bool smollm =
        !ignore_merges && flag_or(steps[0], "individual_digits", false) && is_byte_level(steps[1], true);
    return smollm ? std::optional<std::string>("smollm") : std::nullopt;
  }
  if (steps[0].value("type", "") != "Split" || !is_byte_level(steps[1], false)) return std::nullopt;
  if (steps[0].value("behavior", "") != "Isolated" || flag_or(steps[0], "invert", false)) return std::nullopt;
  const json pattern = steps[0].value("pattern", json::object());
  for (const Split& split : kSplits) {
    if (pattern.is_object() && pattern.value("Regex", json()) == split.pattern &&
        split.ignore_merges == ignore_merges)
      return split.name;
  }
  return std::nullopt;
}

}  // namespace

std::string gguf_pre_tokenizer(const JsonAt& tokenizer) {
  // Programs that read GGUF do not normalize to NFC; nearly all text is in it.
  const JsonAt normalizer = tokenizer.get("normalizer");
  if (!normalizer.is_null() && normalizer.at("type").string() != "NFC")
    normalizer.fail(concat("normalizer ", normalizer.at("type").string(), " cannot be expressed in GGUF"));
  const JsonAt pre_tokenizer = tokenizer.at("pre_tokenizer");
  const bool ignore_merges = flag_or(tokenizer.at("model").value, "ignore_merges", false);
  std::optional<std::string> name;
  if (pre_tokenizer.value.is_object()) name = name_of(pre_tokenizer.value, ignore_merges);
  if (!name) {
    pre_tokenizer.fail(
        "GGUF has no name for this way to split words (known: those of Qwen2, Llama 3, SmolLM, GPT-2, "
        "GPT-4o and Mistral's Tekken); export safetensors");
  }
  return *name;
}

}  // namespace trainer
