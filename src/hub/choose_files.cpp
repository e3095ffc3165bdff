#include "hub/choose_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fnmatch.h>
#include <map>
#include <regex>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/join_some.h"
#include "trainer/base/strings.h"

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

// Data files, by their ending; of compressed ones the ending below.
bool is_data_file(const std::string& path) {
  static const std::regex ending(".*\\.(parquet|(jsonl?|csv|tsv)(\\.(gz|zst))?)");
  static const std::set<std::string> about{"dataset_infos.json", "dataset_info.json", "dataset_dict.json",
                                           "config.json",        "state.json",        "metadata.json"};
  return std::regex_match(path, ending) && !about.contains(path.substr(path.rfind('/') + 1)) &&
         !path.starts_with('.');
}

std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> words(1);
  for (const char c : path) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// "train", "validation" or "test" if the path names a split; else "".
std::string split_of(const std::string& path) {
  static const std::map<std::string, std::string> splits{
      {"train", "train"},    {"training", "train"}, {"validation", "validation"}, {"valid", "validation"},
      {"val", "validation"}, {"dev", "validation"}, {"eval", "validation"},       {"test", "test"},
      {"testing", "test"},   {"heldout", "test"}};
  const std::vector<std::string> words = words_of(path);
  for (auto word = words.rbegin(); word != words.rend(); ++word) {  // the file's own name says it best
    if (const auto found = splits.find(*word); found != splits.end()) return found->second;
  }
  return "";
}

// Files of one set of rows have one pattern: "data/train-*.parquet" of
// "data/train-00000-of-00002-ab12.parquet".
std::string pattern_of(const std::string& path) {
  static const std::regex shard("-[0-9]{5}-of-[0-9]{5}(-[0-9a-f]{16})?"), digits("[0-9]+");
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::string file = path.substr(folder.size());
  const std::string short_name = std::regex_replace(file, shard, "-*");
  return folder + (short_name != file ? short_name : std::regex_replace(file, digits, "*"));
}

std::vector<RemoteFile> of_split(const std::vector<RemoteFile>& files, const std::string& split) {
  std::vector<RemoteFile> out;
  std::ranges::copy_if(files, std::back_inserter(out),
                       [&](const RemoteFile& file) { return split_of(file.path) == split; });
  return out;
}

std::string choices(const Name& name, const std::vector<RemoteFile>& files) {
  std::set<std::string> patterns;
  Name unpinned = name;
  if (is_commit(unpinned.revision)) unpinned.revision.clear();
  for (const RemoteFile& file : files) {
    unpinned.path = pattern_of(file.path);
    patterns.insert(unpinned.text());
  }
  return join_some({patterns.begin(), patterns.end()}, 12, "\n  ");
}

std::vector<RemoteFile> choose_split(const Name& name, const std::vector<RemoteFile>& files, Split split) {
  if (split == Split::any) return files;
  std::vector<RemoteFile> chosen;
  for (const char* kind :
       split == Split::train ? std::array{"train", ""} : std::array{"validation", "test"}) {
    chosen = of_split(files, kind);
    if (!chosen.empty()) break;
  }
  if (chosen.empty()) {
    throw of_family(ErrorCode::hub,
                    DataError(concat("no file of the data set ", name.text(), " is named as ",
                                     split == Split::train ? "training" : "validation or test",
                                     " data; give one of\n  ", choices(name, files))));
  }
  std::set<std::string> patterns;
  for (const RemoteFile& file : chosen) patterns.insert(pattern_of(file.path));
  if (patterns.size() > 1) {
    throw of_family(ErrorCode::hub, DataError(concat("the data set ", name.text(),
                                                     " has several sets of rows; give one or some of\n  ",
                                                     choices(name, chosen))));
  }
  return chosen;
}

std::vector<RemoteFile> data_files_in(const std::vector<RemoteFile>& files, const std::string& folder) {
  std::vector<RemoteFile> out;
  std::ranges::copy_if(files, std::back_inserter(out), [&](const RemoteFile& file) {
    return file.path.starts_with(folder) && is_data_file(file.path);
  });
  return out;
}

[[noreturn]] void refuse_path(const Name& name, const Listing& listing) {
  std::vector<std::string> known;
  for (const RemoteFile& file : data_files_in(listing.files, "")) known.push_back(file.path);
  const std::string near = closest(name.path, known);
  throw of_family(
      ErrorCode::hub,
      DataError(concat("the data set ", name.id, " has no file '", name.path, "'",
                       near.empty() ? concat("; it has ", known.empty() ? "no data files" : join_some(known))
                                    : concat("; did you mean ", name.id, "/", near, "?"))));
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

std::vector<RemoteFile> choose_data_files(const Name& name, const Listing& listing, Split split) {
  if (name.path.empty()) {
    const std::vector<RemoteFile> files = data_files_in(listing.files, "");
    if (files.empty()) {
      throw DataError(concat(
          "the data set ", name.text(),
          " has no files of rows (jsonl, json, csv, tsv, parquet); the hub may have converted it: try ",
          name.id, "@refs/convert/parquet"));
    }
    return choose_split(name, files, split);
  }
  std::vector<RemoteFile> chosen;
  const bool pattern = name.path.find_first_of("*?[") != std::string::npos;
  for (const RemoteFile& file : listing.files) {
    const bool matches = pattern && ::fnmatch(name.path.c_str(), file.path.c_str(), FNM_PATHNAME) == 0;
    if (file.path == name.path || (matches && is_data_file(file.path))) chosen.push_back(file);
  }
  if (chosen.empty() && !pattern) {
    const std::vector<RemoteFile> in_folder = data_files_in(listing.files, name.path + "/");
    if (!in_folder.empty()) chosen = choose_split(name, in_folder, split);
  }
  if (chosen.empty()) refuse_path(name, listing);
  return chosen;
}

}  // namespace trainer::hub
