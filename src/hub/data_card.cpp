#include "hub/data_card.h"

#include <sstream>

#include <yaml-cpp/yaml.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "base/yaml_text.h"

namespace trainer::hub {
namespace {

// The lines between the first line, which is "---", and the next such line.
std::string front_matter(const std::string& readme) {
  constexpr const char *kMark = "---", *kByteOrderMark = "\xef\xbb\xbf";
  std::istringstream lines(readme.starts_with(kByteOrderMark) ? readme.substr(3) : readme);
  std::string text, line;
  const auto next = [&] {
    if (!std::getline(lines, line)) return false;
    line.erase(line.find_last_not_of(" \t\r") + 1);
    return true;
  };
  if (!next() || line != kMark) return "";
  while (next()) {
    if (line == kMark) return text;
    text += line + "\n";
  }
  return "";
}

// As it may be shown: no file's name has what a terminal would obey.
std::string scalar_of(const YAML::Node& node) {
  return node && node.IsScalar() ? printable(node.Scalar()) : "";
}

// Patterns from the root of the repository: of a text, or of a list of texts.
std::vector<std::string> read_patterns(const YAML::Node& node, const std::string& folder) {
  std::vector<std::string> patterns;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) patterns.push_back(folder + (text.starts_with("./") ? text.substr(2) : text));
  };
  if (node && node.IsSequence()) {
    for (const YAML::Node& item : node) add(scalar_of(item));
  } else {
    add(scalar_of(node));
  }
  return patterns;
}

void add_split(const std::string& name, std::vector<std::string> patterns, Subset& subset) {
  if (!patterns.empty()) subset.splits.push_back({name.empty() ? "train" : name, std::move(patterns)});
}

// data_files: a text or a list of texts (all of them train), a list of {split, path}, or {split: path}.
void add_splits(const YAML::Node& files, Subset& subset) {
  if (files && files.IsMap()) {
    for (const auto& entry : files)
      add_split(scalar_of(entry.first), read_patterns(entry.second, subset.folder), subset);
    return;
  }
  const bool named = files && files.IsSequence() && files.size() > 0 && files[0].IsMap();
  if (!named) return add_split("train", read_patterns(files, subset.folder), subset);
  for (const YAML::Node& entry : files) {
    if (entry.IsMap())
      add_split(scalar_of(entry["split"]), read_patterns(entry["path"], subset.folder), subset);
  }
}

std::string prefix_of(const YAML::Node& node) {
  std::string folder = scalar_of(node);
  if (folder.starts_with("./")) folder.erase(0, 2);
  if (folder == ".") folder.clear();
  return folder.empty() || folder.ends_with('/') ? folder : folder + "/";
}

std::vector<Subset> subsets_in(const YAML::Node& card) {
  std::vector<Subset> subsets;
  const YAML::Node configs = card.IsMap() ? card["configs"] : YAML::Node();
  if (!configs || !configs.IsSequence()) return subsets;
  for (const YAML::Node& entry : configs) {
    if (!entry.IsMap()) continue;
    Subset subset;
    subset.name = scalar_of(entry["config_name"]);
    if (subset.name.empty()) subset.name = "default";
    subset.is_default = subset.name == "default" || scalar_of(entry["default"]) == "true";
    subset.folder = prefix_of(entry["data_dir"]);
    add_splits(entry["data_files"], subset);
    subsets.push_back(std::move(subset));
  }
  if (subsets.size() == 1) subsets[0].is_default = true;
  return subsets;
}

}  // namespace

std::vector<Subset> read_subsets(const std::string& readme) {
  const std::string text = front_matter(readme);
  try {
    return subsets_in(parse_yaml(text));
  } catch (const YAML::Exception& error) {
    throw DataError(concat("its first lines are not YAML (line ", error.mark.line + 2, ": ",
                           yaml_problem(error, text), ")"));
  }
}

}  // namespace trainer::hub
