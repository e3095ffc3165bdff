#include "text/tokenizer/qwen2_steps.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "trainer/base/strings.h"

#include "base/warn_once.h"
#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char* kSplitOfQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string text_in(const fs::path& file, const char* key) {
  if (!fs::exists(file)) return "";
  const json content = read_json(file);
  const auto found = content.is_object() ? content.find(key) : content.end();
  return found != content.end() && found->is_string() ? found->get<std::string>() : "";
}

json split_step() {
  return {{"type", "Split"},
          {"pattern", {{"Regex", kSplitOfQwen2}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

// Whether the words are cut in the same way. A key that only some versions write changes nothing.
bool has_its_steps(const json& tokenizer) {
  const auto step = [&](const char* key) { return tokenizer.value(key, json()); };
  if (step("normalizer") != json{{"type", "NFC"}}) return false;
  const json before = step("pre_tokenizer");
  const auto list = before.is_object() ? before.find("pretokenizers") : before.end();
  if (list == before.end() || !list->is_array() || list->size() != 2 || (*list)[0] != split_step())
    return false;
  const json& bytes = (*list)[1];
  return bytes.is_object() && bytes.value("type", json()) == "ByteLevel" &&
         bytes.value("use_regex", json(true)) == false;
}

}  // namespace

bool is_qwen2_tokenizer(const fs::path& directory) {
  const std::string model = text_in(directory / "config.json", "model_type");
  if (model == "qwen2") return true;  // whatever class it names
  const std::string name = text_in(directory / "tokenizer_config.json", "tokenizer_class");
  if (name.empty()) return model == "qwen3" || (model.starts_with("qwen") && model.ends_with("_vl"));
  // For these model types, another class than their own is not trusted.
  constexpr std::array<std::string_view, 4> kOthers{"mistral", "phi3", "granite", "qwen3_5"};
  const bool is_its_class = name == "Qwen2Tokenizer" || name == "Qwen2TokenizerFast";
  return is_its_class && std::ranges::find(kOthers, model) == kOthers.end();
}

void put_qwen2_steps(json& tokenizer, const std::string& where) {
  const auto model = tokenizer.is_object() ? tokenizer.find("model") : tokenizer.end();
  if (model == tokenizer.end() || !model->is_object() || model->value("type", json("BPE")) != "BPE") return;
  const bool merges_whole_words = model->value("ignore_merges", json(false)) == true;
  if (has_its_steps(tokenizer) && !merges_whole_words) return;
  warn_once(concat(where,
                   ": its normalizer and pre_tokenizer are not those of Qwen2Tokenizer, which count, as in "
                   "Transformers 5; they may give other ids"));
  tokenizer["normalizer"] = {{"type", "NFC"}};
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {split_step(),
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
  tokenizer["decoder"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  for (const char* flag : {"fuse_unk", "byte_fallback", "ignore_merges"}) (*model)[flag] = false;
  (*model)["unk_token"] = nullptr;
}

}  // namespace trainer
