#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "hub/choose_files.h"

namespace trainer::hub {
namespace {

constexpr std::array kConfigFiles{"config.json", "adapter_config.json"};
constexpr std::array kTextFiles{"generation_config.json",
                                "tokenizer.json",
                                "tokenizer_config.json",
                                "special_tokens_map.json",
                                "added_tokens.json",
                                "vocab.json",
                                "merges.txt",
                                "vocab.txt",
                                "spiece.model",
                                "tokenizer.model",
                                "chat_template.jinja",
                                "chat_template.json",
                                "preprocessor_config.json",
                                "processor_config.json",
                                "video_preprocessor_config.json"};
constexpr const char* kTemplates = "additional_chat_templates/";
constexpr const char *kWeights = "model.safetensors", *kAdapter = "adapter_model.safetensors";
constexpr std::array kTokenizers{"tokenizer.json", "spiece.model", "tokenizer.model", "vocab.json"};

// "model-00001-of-00002.safetensors"
bool is_shard(const std::string& path) {
  constexpr std::string_view kForm = "model-#####-of-#####.safetensors";
  return std::ranges::equal(path, kForm,
                            [](char c, char form) { return form == '#' ? c >= '0' && c <= '9' : c == form; });
}

template <size_t N>
bool is_in(const std::array<const char*, N>& names, const std::string& path) {
  return std::ranges::find(names, path) != names.end();
}

bool lists(const std::vector<RemoteFile>& files, std::string_view path) {
  return std::ranges::any_of(files, [&](const RemoteFile& file) { return file.path == path; });
}

// The weights that the index names.
void add_named(const Listing& listing, const std::string& index, ChosenFiles& chosen) {
  std::map<std::string_view, const RemoteFile*> wanted;
  const std::vector<CheckedName> names = files_in_index(index);
  for (const CheckedName& name : names) wanted[name.text()] = nullptr;
  for (const RemoteFile& file : listing.files) {
    if (const auto found = wanted.find(file.path.text()); found != wanted.end()) found->second = &file;
  }
  for (const auto& [name, file] : wanted) {
    if (file == nullptr) {
      chosen.missing.emplace_back(name);
    } else {
      chosen.files.push_back(*file);
    }
  }
}

}  // namespace

ChosenFiles choose_model_files(const Listing& listing, ModelParts parts, const std::string& index) {
  std::vector<RemoteFile> weights;
  ChosenFiles chosen;
  const bool has_shards = !lists(listing.files, kWeights), by_index = has_shards && !index.empty();
  for (const RemoteFile& file : listing.files) {
    const std::string& path = file.path.text();
    const bool is_text = is_in(kTextFiles, path) || path.starts_with(kTemplates);
    const bool is_weight = path == kWeights || path == kAdapter ||
                           (has_shards && (path == kIndex || (!by_index && is_shard(path))));
    if (is_in(kConfigFiles, path) || (is_text && parts != ModelParts::config)) chosen.files.push_back(file);
    if (is_weight && parts == ModelParts::all) weights.push_back(file);
  }
  chosen.files.insert(chosen.files.end(), weights.begin(), weights.end());
  if (parts == ModelParts::all && by_index && lists(weights, kIndex)) add_named(listing, index, chosen);
  return chosen;
}

bool have_weights(const std::vector<RemoteFile>& files) {
  const bool has_index = lists(files, kIndex);
  return std::ranges::any_of(files, [&](const RemoteFile& file) {
    const std::string& path = file.path.text();
    return path.ends_with(".safetensors") && (has_index || !is_shard(path));
  });
}

std::vector<CheckedName> files_in_index(const std::string& index) {
  const auto json = nlohmann::json::parse(index, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty())
    throw FormatError("it has no weight_map");
  std::set<CheckedName> names;
  for (const auto& [tensor, file] : map->items()) {
    const auto name = file.is_string() ? CheckedName::file(file.get_ref<const std::string&>()) : std::nullopt;
    if (!name)
      throw FormatError(concat("weight_map: '", one_line(tensor, 80),
                               "': ", one_line(file.dump(-1, ' ', true), 80), " is not a file name"));
    names.insert(*name);
  }
  return {names.begin(), names.end()};
}

bool is_complete_model(const std::function<bool(const std::string&)>& has, const std::string& index,
                       ModelParts parts) {
  const bool is_adapter = has("adapter_config.json");
  if (!has("config.json") && !is_adapter) return false;
  if (parts == ModelParts::config) return true;
  if (!is_adapter && std::ranges::none_of(kTokenizers, has)) return false;
  if (parts == ModelParts::tokenizer) return true;
  if (has(kWeights) || (is_adapter && has(kAdapter))) return true;
  try {
    return std::ranges::all_of(files_in_index(index),
                               [&](const CheckedName& file) { return has(file.text()); });
  } catch (const FormatError&) {
    return false;
  }
}

bool has_only_pickles(const Listing& listing) {
  const auto weights = choose_model_files(listing, ModelParts::all, "").files;
  const bool safe = std::ranges::any_of(
      weights, [](const RemoteFile& file) { return file.path.text().ends_with(".safetensors"); });
  return !safe && std::ranges::any_of(listing.files, [](const RemoteFile& file) {
    return file.path == "pytorch_model.bin" || file.path == "pytorch_model.bin.index.json" ||
           file.path == "adapter_model.bin";
  });
}

}  // namespace trainer::hub
