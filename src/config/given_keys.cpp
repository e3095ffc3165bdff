// The keys of another trainer's file, and the forms of their values.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "trainer/base/strings.h"

#include "base/text.h"
#include "config/import_settings.h"
#include "config/value.h"

namespace trainer::config {
namespace {

std::string quoted(const YAML::Node& scalar) {
  const std::string& text = scalar.Scalar();
  // What was quoted in the file is text, whatever it looks like.
  if (scalar.Tag() == "!") return text_as_yaml(text);
  double number = 0;
  if (YAML::convert<double>::decode(scalar, number) &&
      text.find_first_not_of("0123456789+-.eE") == std::string::npos &&
      text.find_first_of("eE") != std::string::npos) {
    return number_as_yaml(number);
  }
  return text.find_first_of("#:{}[]&*!|>'\"%@`,\n") == std::string::npos ? text : text_as_yaml(text);
}

std::string name_of(const YAML::Node& key) { return key.IsScalar() ? key.Scalar() : node_as_yaml(key); }

// `place`: of the mapping in the file; `inside`: of a mapping in that.
void add_names(const std::string& place, const std::string& inside, const YAML::Node& node,
               std::vector<std::string>& names) {
  if (node.IsSequence()) {
    for (const auto& item : node) add_names(place, inside, item, names);
  }
  if (!node.IsMap()) return;
  for (const auto& entry : node) {
    const std::string name = inside + name_of(entry.first);
    if (is_empty(entry.second) || says_nothing(concat(place, ".", name), entry.second)) continue;
    if (has_names_inside(entry.second)) {
      add_names(place, name + ".", entry.second, names);
    } else if (std::ranges::find(names, name) == names.end()) {
      names.push_back(name);
    }
  }
}

}  // namespace

bool is_empty(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return true;
  if (node.IsScalar()) return node.Scalar().empty() || node.Scalar() == "None";
  return node.size() == 0;
}

bool has_names_inside(const YAML::Node& node) {
  if (node.IsMap()) return node.size() > 0;
  return node.IsSequence() &&
         std::any_of(node.begin(), node.end(), [](const auto& item) { return has_names_inside(item); });
}

std::string with_names_inside(const std::string& name, const YAML::Node& value) {
  constexpr size_t kMost = 100;
  std::vector<std::string> names;
  add_names(name, "", value, names);
  return names.empty() ? "" : concat(name, ": {", join_some(names, kMost), "}");
}

bool is_true(const YAML::Node& node) {
  if (!node.IsScalar()) return !is_empty(node);
  const std::string text = lower_case(node.Scalar());
  return !text.empty() && text != "false" && text != "no" && text != "off" && text != "0" && text != "none" &&
         text != "null";
}

std::string node_as_yaml(const YAML::Node& node) {
  if (node.IsScalar()) return quoted(node);
  std::vector<std::string> items;
  if (node.IsSequence()) {
    for (const auto& item : node) items.push_back(node_as_yaml(item));
    return "[" + join(items) + "]";
  }
  if (!node.IsMap()) return "null";
  for (const auto& entry : node)
    items.push_back(node_as_yaml(entry.first) + ": " + node_as_yaml(entry.second));
  return "{" + join(items) + "}";
}

std::vector<std::string> texts_of(const YAML::Node& node) {
  std::vector<std::string> texts;
  if (node.IsSequence()) {
    for (const auto& item : node) texts.push_back(item.IsScalar() ? item.Scalar() : node_as_yaml(item));
    return texts;
  }
  if (!node.IsScalar()) return {node_as_yaml(node)};
  std::istringstream parts(node.Scalar());
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos)
      texts.push_back(part.substr(begin, part.find_last_not_of(' ') + 1 - begin));
  }
  return texts;
}

GivenKeys::GivenKeys(const YAML::Node& mapping, std::string place) : place_(std::move(place)) {
  for (const auto& entry : mapping) {
    entries_.emplace_back(name_of(entry.first), entry.second);
    if (!is_empty(entry.second)) given_.emplace(name_of(entry.first), entry.second);
    if (entry.second.IsNull()) nulls_.insert(name_of(entry.first));
  }
}

std::string GivenKeys::full_name(const std::string& name) const {
  return place_.empty() ? name : concat(place_, ".", name);
}

std::optional<YAML::Node> GivenKeys::take(const std::string& name) {
  const auto found = std::ranges::find(entries_, name, [](const auto& entry) { return entry.first; });
  if (found == entries_.end()) return std::nullopt;
  const YAML::Node value = found->second;
  entries_.erase(found);
  if (is_empty(value)) return std::nullopt;
  return value;
}

std::optional<std::string> GivenKeys::take_text(const std::string& name) {
  if (const auto value = peek(name); value && has_names_inside(*value)) return std::nullopt;
  const auto value = take(name);
  if (!value) return std::nullopt;
  return value->IsScalar() ? value->Scalar() : node_as_yaml(*value);
}

std::optional<double> GivenKeys::take_number(const std::string& name) {
  if (const auto value = peek(name); value && has_names_inside(*value)) return std::nullopt;
  const auto value = take(name);
  if (!value) return std::nullopt;
  double number = 0;
  if (value->IsScalar() && YAML::convert<double>::decode(*value, number) && std::abs(number) < 1e15)
    return number;
  no_numbers_.push_back(full_name(name));
  return std::nullopt;
}

bool GivenKeys::take_flag(const std::string& name) {
  if (const auto value = peek(name); value && has_names_inside(*value)) return false;
  const auto value = take(name);
  return value && is_true(*value);
}

void GivenKeys::drop(const std::vector<std::string>& names) {
  for (const std::string& name : names) static_cast<void>(take_text(name));
}

std::optional<GivenKeys> GivenKeys::take_part(const std::string& name) {
  const auto value = peek(name);
  if (!value || !value->IsMap()) return std::nullopt;
  return GivenKeys(*take(name), full_name(name));
}

std::optional<YAML::Node> GivenKeys::peek(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, [](const auto& entry) { return entry.first; });
  return found == entries_.end() || is_empty(found->second) ? std::nullopt : std::optional(found->second);
}

bool GivenKeys::was_true(const std::string& name) const {
  const auto found = given_.find(name);
  return found != given_.end() && is_true(found->second);
}

std::optional<std::string> GivenKeys::given_text(const std::string& name) const {
  const auto found = given_.find(name);
  return found != given_.end() && found->second.IsScalar() ? std::optional(found->second.Scalar())
                                                           : std::nullopt;
}

std::optional<double> GivenKeys::given_number(const std::string& name) const {
  const auto found = given_.find(name);
  double number = 0;
  if (found == given_.end() || !YAML::convert<double>::decode(found->second, number)) return std::nullopt;
  return number;
}

std::vector<std::pair<std::string, YAML::Node>> GivenKeys::rest() const {
  std::vector<std::pair<std::string, YAML::Node>> rest;
  for (const auto& entry : entries_) {
    if (!is_empty(entry.second)) rest.push_back(entry);
  }
  return rest;
}

}  // namespace trainer::config
