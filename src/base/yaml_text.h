// Parsing YAML text, with the places where yaml-cpp is too trusting closed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

namespace trainer {

// The one document that the text holds (null when it is empty). Throws YAML::ParserException: malformed, text
// after the document's end, a quote that is never closed, an alias (*name) inside of what it stands for, and
// aliases that stand for far more than the text has.
YAML::Node parse_yaml(const std::string& text);

// Returns a copy in which the entries that merge keys (<<: *name, or a list of those) stand for are in place,
// at every level, as PyYAML puts them: the mapping's own entries count, and of a list the first that has a
// key. Throws YAML::ParserException where << has something else than mappings.
YAML::Node with_merged_keys(const YAML::Node& node);

// A key that its mapping has had before. depth: 1 for the keys of the whole document, 2 for those of its
// sections.
struct RepeatedKey {
  std::string name;
  YAML::Mark mark, first;
  size_t depth;
};
// Returns those of all levels, in the order of the text. Throws as parse_yaml().
std::vector<RepeatedKey> repeated_keys(const std::string& text);

// What is wrong with `text`, in words of ours.
std::string yaml_problem(const YAML::Exception& error, const std::string& text);

}  // namespace trainer
