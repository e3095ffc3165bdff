#include "trainer/base/strings.h"

#include "base/yaml_text.h"
#include "config/foreign_keys.h"
#include "config/layer.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/webhook.h"

namespace trainer::config {
namespace {

// Text for the keys that take text: no YAML, so that "Translate: {german}" or a path with '#' needs no second
// quoting.
YAML::Node plain_text(const std::string& text) {
  YAML::Node node(text);
  node.SetTag("!");
  return node;
}

bool is_yaml_list_or_quoted(const std::string& value) {
  if (value.size() < 2) return false;
  const char first = value.front(), last = value.back();
  return (first == '[' && last == ']') || (first == last && (first == '"' || first == '\''));
}

YAML::Node parse_value(const Key* key, const std::string& value) {
  if (key == nullptr || !takes_text(*key)) return parse_yaml(value);
  if (value == "null" || value.empty()) return YAML::Node(YAML::NodeType::Null);
  if (!is_yaml_list_or_quoted(value)) return plain_text(value);
  try {
    return parse_yaml(value);
  } catch (const YAML::Exception&) {
    return plain_text(value);  // a regular expression: [qv]_[a-z]
  }
}

// The full names of the keys with this name, then of those that end with it: "save.steps or
// training.max_steps".
std::string full_names_like(const std::string& name) {
  std::vector<std::string> same, longer;
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      if (key.name == name) same.push_back(key.full_name());
      if (key.name.ends_with("_" + name)) longer.push_back(key.full_name());
    }
  }
  same.insert(same.end(), longer.begin(), longer.end());
  return join(same, " or ");
}

// The key that an override means: "section.key", a key of the top level, or a name that is clear without its
// section.
const Key* find_overridden(const std::string& name, const Place& where, Problems& problems) {
  if (const Key* key = find_key(name)) return key;
  if (const Key* key = key_by_short_name(name)) return key;
  const size_t several = keys_named(name).size(), dot = name.find('.');
  std::string problem;
  if (several > 0) {
    problem = concat(several > 1 ? "is in several sections" : "may mean several things", "; write ",
                     full_names_like(name));
  } else if (dot == std::string::npos) {
    problem = unknown_key("", name);
  } else {
    problem = unknown_key(name.substr(0, dot), name.substr(dot + 1));
  }
  problems.push_back({where, name, problem, ExitCode::usage, ErrorCode::config_key});
  return nullptr;
}

// Keys that come twice in `value` at this depth or deeper become problems.
void refuse_repeated(const std::string& value, size_t depth, const Place& where, Problems& problems) {
  for (const RepeatedKey& key : repeated_keys(value)) {
    if (key.depth >= depth) problems.push_back({where, key.name, "given twice"});
  }
}

void read_override(const std::string& text, Layer& layer, Problems& problems) {
  const Place where{"override '" + shown_override(text) + "'"};
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    const bool is_file = text.ends_with(".yaml") || text.ends_with(".yml");
    problems.push_back({Place{}, "",
                        concat("unexpected argument '", shown_override(text), "'; ",
                               is_file ? "to give a configuration file, write --config " + text
                                       : "settings are key=value")});
    return;
  }
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  try {
    if (const Section* section = find_section(name)) {
      const YAML::Node node = parse_yaml(value);
      layer.push_back({section->name, "", node, where, where});
      if (node.IsMap()) {
        read_section(
            section->name, node, [&where](const YAML::Mark&) { return where; }, layer, problems);
      }
      refuse_repeated(value, 2, where, problems);
    } else if (const std::string advice = advice_for_value(name, value); !advice.empty()) {
      problems.push_back({where, name, advice});
    } else if (name == "extends") {
      problems.push_back(
          {where, name, "only works in a file; to start from a preset, give it with --config"});
    } else if (const Key* key = find_overridden(name, where, problems)) {
      layer.push_back({key->section, key->name, parse_value(key, value), where, where, value == "null"});
      if (!takes_text(*key)) refuse_repeated(value, 1, where, problems);
    }
  } catch (const YAML::Exception& error) {
    problems.push_back({where, name, "malformed value: " + yaml_problem(error, value)});
  }
}

}  // namespace

Layer read_overrides(const std::vector<std::string>& overrides, Problems& problems) {
  Layer layer;
  for (const std::string& text : overrides) read_override(text, layer, problems);
  return layer;
}

}  // namespace trainer::config
