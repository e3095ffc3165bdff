#include "hub/choose_model_files.h"

#include <algorithm>
#include <array>
#include <regex>

#include <nlohmann/json.hpp>

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
                                "chat_template.json"};
constexpr const char* kTemplates = "additional_chat_templates/";
constexpr const char *kWeights = "model.safetensors", *kIndex = "model.safetensors.index.json",
                     *kAdapter = "adapter_model.safetensors";
constexpr std::array kTokenizers{"tokenizer.json", "spiece.model", "tokenizer.model", "vocab.json"};

bool is_shard(const std::string& path) {
  static const std::regex shard("model-[0-9]{5}-of-[0-9]{5}\\.safetensors");
  return std::regex_match(path, shard);
}

template <size_t N>
bool is_in(const std::array<const char*, N>& names, const std::string& path) {
  return std::ranges::find(names, path) != names.end();
}

bool lists(const Listing& listing, const std::string& path) {
  return std::ranges::any_of(listing.files, [&](const RemoteFile& file) { return file.path == path; });
}

}  // namespace

std::vector<RemoteFile> choose_model_files(const Listing& listing, ModelParts parts) {
  std::vector<RemoteFile> first, weights;
  const bool single = lists(listing, kWeights);
  for (const RemoteFile& file : listing.files) {
    const bool is_text = is_in(kTextFiles, file.path) || file.path.starts_with(kTemplates);
    const bool is_weight = file.path == kWeights || file.path == kAdapter ||
                           (!single && (file.path == kIndex || is_shard(file.path)));
    if (is_in(kConfigFiles, file.path) || (is_text && parts != ModelParts::config)) first.push_back(file);
    if (is_weight && parts == ModelParts::all) weights.push_back(file);
  }
  first.insert(first.end(), weights.begin(), weights.end());
  return first;
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
    const auto files = nlohmann::json::parse(index).at("weight_map");
    return !files.empty() && std::ranges::all_of(files, [&](const auto& file) { return has(file); });
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

bool has_only_pickles(const Listing& listing) {
  const auto weights = choose_model_files(listing, ModelParts::all);
  const bool safe = std::ranges::any_of(
      weights, [](const RemoteFile& file) { return file.path.ends_with(".safetensors"); });
  return !safe && std::ranges::any_of(listing.files, [](const RemoteFile& file) {
    return file.path == "pytorch_model.bin" || file.path == "pytorch_model.bin.index.json" ||
           file.path == "adapter_model.bin";
  });
}

}  // namespace trainer::hub
