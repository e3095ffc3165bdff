#include "hub/choose_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fnmatch.h>
#include <map>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer::hub {
namespace {

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

// Returns the names that continue `name`, one choice on each line.
std::string choices(Name name, const std::set<std::string>& paths) {
  if (is_commit(name.revision)) name.revision.clear();
  std::vector<std::string> texts;
  for (const std::string& path : paths) texts.push_back((name.path = path, name.text()));
  return join_some(texts, 12, "\n  ");
}

std::set<std::string> patterns_of(const std::vector<RemoteFile>& files) {
  std::set<std::string> patterns;
  for (const RemoteFile& file : files) patterns.insert(pattern_of(file.path));
  return patterns;
}

// Returns the words for a split in file names, the best first; "" is a name without any.
std::array<const char*, 2> kinds_of(Split split) {
  return split == Split::train ? std::array{"train", ""} : std::array{"validation", "test"};
}

const char* rows_of(Split split) { return split == Split::train ? "training" : "validation or test"; }

std::vector<RemoteFile> choose_split(const Name& name, const std::vector<RemoteFile>& files, Split split) {
  if (split == Split::any) return files;
  std::vector<RemoteFile> chosen;
  for (const char* kind : kinds_of(split)) {
    chosen = of_split(files, kind);
    if (!chosen.empty()) break;
  }
  if (chosen.empty()) {
    throw DataError(concat("no file of the data set ", name.text(), " is named as ", rows_of(split),
                           " data; give one of\n  ", choices(name, patterns_of(files))));
  }
  const std::set<std::string> patterns = patterns_of(chosen);
  if (patterns.size() > 1) {
    throw DataError(concat("the data set ", name.text(), " has several sets of rows; give one or some of\n  ",
                           choices(name, patterns)));
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

constexpr const char* kKinds = "jsonl, json, csv, tsv, parquet";

[[noreturn]] void refuse_empty(const Name& name) {
  throw DataError(concat("the data set ", name.text(), " has no files of rows (", kKinds,
                         "); the hub may have converted it: try ", name.id, "@refs/convert/parquet"));
}

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

// Returns whether a path has a pattern: * is any part of a name, ** any folders, also none.
bool matches(const std::string& pattern, const std::string& path) {
  const size_t folders = pattern.find("**/");
  if (pattern.find("**") == std::string::npos)
    return ::fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
  if (::fnmatch(pattern.c_str(), path.c_str(), 0) == 0) return true;
  return folders != std::string::npos && matches(std::string(pattern).erase(folders, 3), path);
}

// The subset that the path names, or the default one; nullptr: names of files and folders decide.
const Subset* subset_of(const Name& name, const std::vector<Subset>& subsets) {
  const auto found = std::ranges::find_if(subsets, [&](const Subset& subset) {
    return name.path.empty() ? subset.is_default : subset.name == name.path;
  });
  if (found != subsets.end()) return &*found;
  if (!name.path.empty() || subsets.empty()) return nullptr;
  std::set<std::string> names;
  for (const Subset& subset : subsets) names.insert(subset.name);
  throw DataError(concat("the data set ", name.text(), " has several subsets; give one or some of\n  ",
                         choices(name, names)));
}

// The splits of a subset that are meant: one of this very name, else all whose names say it.
std::vector<CardSplit> splits_of(const Subset& subset, Split split) {
  if (split == Split::any) return subset.splits;
  std::vector<CardSplit> named, chosen;
  for (const char* kind : kinds_of(split)) {
    std::ranges::copy_if(subset.splits, std::back_inserter(named),
                         [&](const CardSplit& known) { return known.name == kind; });
    std::ranges::copy_if(subset.splits, std::back_inserter(chosen),
                         [&](const CardSplit& known) { return split_of(known.name) == kind; });
    if (!chosen.empty()) break;
  }
  return named.empty() ? chosen : named;
}

CardSplit choose_card_split(const Name& name, const Subset& subset, Split split) {
  const std::vector<CardSplit> splits = splits_of(subset, split);
  CardSplit chosen;
  std::set<std::string> patterns;
  for (const CardSplit& known : splits.empty() ? subset.splits : splits) {
    chosen.name += (chosen.name.empty() ? "" : ", ") + known.name;
    chosen.patterns.insert(chosen.patterns.end(), known.patterns.begin(), known.patterns.end());
  }
  patterns.insert(chosen.patterns.begin(), chosen.patterns.end());
  if (splits.empty())
    throw DataError(concat("the data set ", name.text(), " has no ", rows_of(split), " data: its splits are ",
                           chosen.name, "; give one or some of\n  ", choices(name, patterns)));
  if (splits.size() > 1 && split != Split::any)
    throw DataError(concat("the data set ", name.text(), " has several splits of ", rows_of(split), " data, ",
                           chosen.name, "; give one or some of\n  ", choices(name, patterns)));
  return chosen;
}

std::vector<RemoteFile> choose_in_subset(const Name& name, const Listing& listing, const Subset& subset,
                                         Split split) {
  if (subset.splits.empty()) {
    const std::vector<RemoteFile> files = data_files_in(listing.files, subset.folder);
    if (files.empty()) refuse_empty(name);
    return choose_split(name, files, split);
  }
  const CardSplit wanted = choose_card_split(name, subset, split);
  std::vector<RemoteFile> chosen;
  std::string other;
  for (const RemoteFile& file : listing.files) {
    if (std::ranges::none_of(wanted.patterns, [&](const auto& one) { return matches(one, file.path); }))
      continue;
    if (is_data_file(file.path)) {
      chosen.push_back(file);
    } else {
      other = file.path;
    }
  }
  if (!chosen.empty()) return chosen;
  throw DataError(
      concat("the data set ", name.text(), ": its README.md says that ", wanted.name, " is ",
             join_some(wanted.patterns),
             other.empty() ? ", and no file is named so" : concat("; ", other, " is not read, only ", kKinds),
             "; the hub may have converted it: try ", name.id, "@refs/convert/parquet"));
}

[[noreturn]] void refuse_path(const Name& name, const Listing& listing) {
  std::vector<std::string> known;
  for (const RemoteFile& file : data_files_in(listing.files, "")) known.push_back(file.path);
  const std::string near = closest(name.path, known);
  throw DataError(concat("the data set ", name.id, " has no file '", name.path, "'",
                         near.empty()
                             ? concat("; it has ", known.empty() ? "no data files" : join_some(known))
                             : concat("; did you mean ", name.id, "/", near, "?")));
}

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

bool depends_on_subsets(const Name& name, const Listing& listing) {
  const bool is_file = std::ranges::find(listing.files, name.path, &RemoteFile::path) != listing.files.end();
  return !is_file && !is_pattern(name.path);
}

std::vector<RemoteFile> choose_data_files(const Name& name, const Listing& listing, Split split,
                                          const std::vector<Subset>& subsets) {
  const bool all = name.path.empty() && split == Split::any;
  if (!all && depends_on_subsets(name, listing)) {
    if (const Subset* subset = subset_of(name, subsets))
      return choose_in_subset(name, listing, *subset, split);
  }
  if (name.path.empty()) {
    const std::vector<RemoteFile> files = data_files_in(listing.files, "");
    if (files.empty()) refuse_empty(name);
    return choose_split(name, files, split);
  }
  std::vector<RemoteFile> chosen;
  const bool pattern = is_pattern(name.path);
  for (const RemoteFile& file : listing.files) {
    const bool found = pattern && matches(name.path, file.path) && is_data_file(file.path);
    if (file.path == name.path || found) chosen.push_back(file);
  }
  if (chosen.empty() && !pattern) {
    const std::vector<RemoteFile> in_folder = data_files_in(listing.files, name.path + "/");
    if (!in_folder.empty()) chosen = choose_split(name, in_folder, split);
  }
  if (chosen.empty()) refuse_path(name, listing);
  return chosen;
}

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
