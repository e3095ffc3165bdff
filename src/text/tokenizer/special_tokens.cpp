#include "text/tokenizer/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/warn_once.h"
#include "text/tokenizer/config_keys.h"
#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace {

// A token is a string (its content), or an object with its flags.
std::optional<AddedToken> read_token(const JsonAt& json) {
  if (json.is_null()) return std::nullopt;
  if (json.value.is_string()) return AddedToken{.content = json.string(), .special = true};
  const auto flag = [&](const char* key) { return !json.get(key).is_null() && json.get(key).boolean(); };
  return AddedToken{.content = json.at("content").string(),
                    .special = true,
                    .single_word = flag("single_word"),
                    .lstrip = flag("lstrip"),
                    .rstrip = flag("rstrip"),
                    .normalized = flag("normalized")};
}

// The same where there has to be one.
AddedToken needed_token(const JsonAt& json) {
  if (const auto token = read_token(json)) return *token;
  json.fail("a token is expected here");
}

int32_t id_of_key(const JsonAt& json, const std::string& key) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0)
    json.fail("a token id is expected as key");
  return id;
}

void read_added_tokens_decoder(const JsonAt& json, SpecialTokens& out) {
  if (!json.value.is_object()) json.fail("an object is expected here");
  for (const auto& [key, value] : json.value.items()) {
    const JsonAt item = json.get(key);
    AddedToken token = needed_token(item);
    token.special = !item.get("special").is_null() && item.get("special").boolean();
    out.added.emplace_back(id_of_key(item, key), token);
  }
  std::ranges::sort(out.added, {}, &std::pair<int32_t, AddedToken>::first);
}

bool has_tokens(const JsonAt& json, const char* list) {
  const JsonAt member = json.get(list);
  return member.value.is_structured() && !member.value.empty();
}

// Adds the named tokens and the lists of one file. A name that is already known is kept. `takes_additional`:
// the older list, additional_special_tokens, is read; Transformers 5 reads it only where there is no other.
void read_names(const JsonAt& json, bool takes_additional, std::map<std::string, AddedToken>& named,
                std::vector<AddedToken>& additional) {
  if (!json.value.is_object()) json.fail("an object is expected here");
  for (const auto& [name, value] : json.value.items()) {
    if (!name.ends_with("_token") || value.is_boolean()) continue;  // add_bos_token is a switch
    // Without text it is none, as in Transformers.
    if (const auto token = read_token(json.get(name)); token && !token->content.empty())
      named.emplace(name, *token);
  }
  for (const char* name :
       {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"}) {
    const JsonAt list = json.get(name);
    if (!takes_additional && std::string_view(name) == "additional_special_tokens") continue;
    if (list.value.is_object()) {
      for (const auto& [key, unused] : list.value.items()) named.emplace(key, needed_token(list.get(key)));
    } else if (!list.is_null()) {
      for (size_t i = 0; i < list.array().size(); i++) additional.push_back(needed_token(list.item(i)));
    }
  }
}

// {"<new>": 32000}. They are special only if they are named elsewhere.
void read_added_before(const JsonAt& json, const std::map<std::string, AddedToken>& named,
                       SpecialTokens& out) {
  if (!json.value.is_object()) json.fail("an object is expected here");
  std::set<std::string_view> special;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (const auto found = named.find(name); found != named.end()) special.insert(found->second.content);
  }
  for (const AddedToken& token : out.additional) special.insert(token.content);
  for (const auto& [content, unused] : json.value.items()) {
    if (content.empty()) continue;  // none, as in Transformers
    const bool is_special = special.contains(content);
    out.added_before.emplace_back(
        json.get(content).id(),
        AddedToken{.content = content, .special = is_special, .normalized = !is_special});
  }
  std::ranges::stable_sort(out.added_before, {}, &std::pair<int32_t, AddedToken>::first);
}

// Transformers does not hold the tokens to the ids that the file gives them. If tokenizer.json has a token
// with the id, that one counts.
void add_as_before(const SpecialTokens& special,
                   const std::function<std::optional<int32_t>(std::string_view)>& find,
                   int32_t vocabulary_size, const std::string& where, AddedTokens& added) {
  for (const auto& [id, token] : special.added_before) {
    if (added.all().contains(id)) continue;
    added.add(token, find(token.content), vocabulary_size, std::nullopt, where);
    const int32_t given = *added.id_of(token.content);
    if (given == id) continue;
    const std::string what =
        concat(where, ": token '", token.content, "' has the id ", id, ", but the rest of the vocabulary ");
    if (id < vocabulary_size)
      throw FormatError(concat(what,
                               "has another token there; remove it from the file, or copy the files of "
                               "the tokenizer again"));
    warn_once(concat(what, "gives it ", given, ", as in Transformers 5; are the files of one tokenizer?"));
  }
}

// Transformers 5 makes the steps of Qwen2Tokenizer anew and takes this key for them, whatever tokenizer.json
// says; for other classes that can be read here, the key has no effect.
void refuse_prefix_space(const JsonAt& config, const std::filesystem::path& directory) {
  const JsonAt key = config.get("add_prefix_space"), name = config.get("tokenizer_class");
  if (key.value != true || (name.value != "Qwen2Tokenizer" && name.value != "Qwen2TokenizerFast")) return;
  if (!std::filesystem::exists(directory / "tokenizer.json")) return;
  const nlohmann::json file = read_json(directory / "tokenizer.json");
  const auto steps = file.is_object() ? file.find("pre_tokenizer") : file.end();
  if (steps != file.end() && steps->dump().find(R"("add_prefix_space":true)") != std::string::npos) return;
  key.fail(
      "true is not supported for a tokenizer.json that adds no space; write it with "
      "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR), or set the key to false");
}

}  // namespace

SpecialTokens read_special_tokens(const std::filesystem::path& directory) {
  const auto read_if_there = [&](const char* name) {
    return std::filesystem::exists(directory / name) ? read_json(directory / name) : nlohmann::json::object();
  };
  const auto where = [&](const char* name) { return (directory / name).string() + ":"; };
  const nlohmann::json config_file = read_if_there("tokenizer_config.json");
  const JsonAt config{config_file, where("tokenizer_config.json")};
  check_tokenizer_config(config);
  refuse_prefix_space(config, directory);
  const bool has_lists =
      has_tokens(config, "extra_special_tokens") || has_tokens(config, "additional_special_tokens");
  SpecialTokens out;
  std::map<std::string, AddedToken> named;
  if (const JsonAt decoder = config.get("added_tokens_decoder"); !decoder.is_null()) {
    read_added_tokens_decoder(decoder, out);
  } else {
    const nlohmann::json map_file = read_if_there("special_tokens_map.json");
    const JsonAt map{map_file, where("special_tokens_map.json")};
    check_special_tokens_map(map);
    read_names(map, !has_lists && !has_tokens(map, "extra_special_tokens"), named, out.additional);
  }
  read_names(config, !has_tokens(config, "extra_special_tokens"), named, out.additional);
  if (config.get("added_tokens_decoder").is_null()) {
    const nlohmann::json before = read_if_there("added_tokens.json");
    read_added_before({before, where("added_tokens.json")}, named, out);
  }
  if (const JsonAt extra_ids = config.get("extra_ids"); !extra_ids.is_null()) out.extra_ids = extra_ids.id();
  const auto flag = [&](const char* key) {
    const JsonAt member = config.get(key);
    return member.is_null() ? std::nullopt : std::optional(member.boolean());
  };
  out.add_bos = flag("add_bos_token");
  out.add_eos = flag("add_eos_token");
  out.cleans_up_spaces = flag("clean_up_tokenization_spaces").value_or(false);
  out.cleans_up_spaces_of_bpe =
      flag("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output").value_or(false);
  out.fixes_mistral_regex = flag("fix_mistral_regex").value_or(false);

  const auto content = [&](const char* name) {
    const auto found = named.find(name);
    return found == named.end() ? std::nullopt : std::optional(found->second.content);
  };
  out.eos = content("eos_token");
  out.pad = content("pad_token");
  out.unk = content("unk_token");
  for (const auto& [name, token] : named) {
    out.named.push_back(token);
    out.by_name.emplace(name, token.content);
  }
  return out;
}

void add_special_tokens(const SpecialTokens& special,
                        const std::function<std::optional<int32_t>(std::string_view)>& find,
                        int32_t vocabulary_size, const std::filesystem::path& directory, AddedTokens& added) {
  const std::string where = (directory / "tokenizer_config.json").string();
  for (const auto& [id, token] : special.added)
    added.add(token, find(token.content), vocabulary_size, id, where);
  add_as_before(special, find, vocabulary_size, (directory / "added_tokens.json").string(), added);
  for (const auto* tokens : {&special.named, &special.additional}) {
    for (const auto& token : *tokens) {
      if (!added.id_of(token.content))
        added.add(token, find(token.content), vocabulary_size, std::nullopt, where);
    }
  }
  for (const auto& token : special.named) added.make_special(*added.id_of(token.content));
}

}  // namespace trainer
