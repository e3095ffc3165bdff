#include "config/value.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>

#include "trainer/base/strings.h"

#include "config/special_values.h"
#include "config/webhook.h"

namespace trainer::config {
namespace {

template <class... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};
template <class... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

bool is_quoted(const YAML::Node& node) { return node.Tag() != "?" && !node.Tag().empty(); }

template <class Number>
std::optional<Number> parse_number(std::string text) {
  std::erase(text, '_');
  const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* last = text.data() + text.size();
  Number value{};
  const auto [end, error] = std::from_chars(first, last, value);
  if (error != std::errc{} || end != last) return std::nullopt;
  return value;
}

std::string bound_as_text(double bound) {
  const bool is_whole = std::floor(bound) == bound && std::fabs(bound) < 1e15;
  return is_whole ? std::to_string(static_cast<int64_t>(bound)) : number_as_yaml(bound);
}

bool in_range(const Key& key, double value) {
  if (!std::isfinite(value)) return false;
  if (key.minimum && (key.above_minimum ? value <= *key.minimum : value < *key.minimum)) return false;
  if (key.maximum && (key.below_maximum ? value >= *key.maximum : value > *key.maximum)) return false;
  return true;
}

std::string lower_bound(const Key& key) {
  return key.minimum ? (key.above_minimum ? "above " : "at least ") + bound_as_text(*key.minimum) : "";
}
std::string upper_bound(const Key& key) {
  return key.maximum ? (key.below_maximum ? "below " : "at most ") + bound_as_text(*key.maximum) : "";
}

// An upper bound that is there against nonsense only is not named where a value is too small.
std::string broken_range(const Key& key, double value) {
  if (!key.minimum || !key.maximum || key.below_maximum) return allowed_range(key);
  return value > *key.maximum ? upper_bound(key) : lower_bound(key);
}

template <class Number>
std::optional<std::string> assign_scalar(const Key& key, const YAML::Node& node, Number& target) {
  std::optional<Number> value;
  if (node.IsScalar() && !is_quoted(node)) value = parse_number<Number>(node.Scalar());
  if (!value) return concat("expected ", expected_value(key), ", found ", describe(node));
  if (!in_range(key, static_cast<double>(*value))) {
    const std::string range = broken_range(key, static_cast<double>(*value));
    return concat("must be ", range.empty() ? "finite" : range, ", found ", node.Scalar());
  }
  target = *value;
  return std::nullopt;
}

std::optional<std::string> assign_scalar(const Key& key, const YAML::Node& node, bool& target) {
  const std::string text = node.IsScalar() && !is_quoted(node) ? node.Scalar() : "";
  const bool yes = text == "true" || text == "True" || text == "TRUE";
  const bool no = text == "false" || text == "False" || text == "FALSE";
  if (!yes && !no) return concat("expected ", expected_value(key), ", found ", describe(node));
  target = yes;
  return std::nullopt;
}

bool is_word(const YAML::Node& node, const char* word) {
  return node.IsScalar() && !is_quoted(node) && node.Scalar() == word;
}

// A value that may also be a word: Plain is what it is otherwise.
template <class Plain, class Target>
std::optional<std::string> assign_or_word(const Key& key, const YAML::Node& node, const char* word,
                                          const Target& of_word, Target& target) {
  Plain plain{};
  std::optional<std::string> problem;
  if (is_word(node, word)) {
    target = of_word;
    return problem;
  }
  problem = assign_scalar(key, node, plain);
  if (!problem) target = plain;
  return problem;
}

std::optional<std::string> assign_recompute(const Key& key, const YAML::Node& node, Recompute& target) {
  if (is_word(node, "light")) {
    target = Recompute::light();
    return std::nullopt;
  }
  if (!assign_or_word<bool>(key, node, "auto", Recompute::automatic(), target)) return std::nullopt;
  int64_t blocks = 0;
  auto problem = assign_scalar(key, node, blocks);
  if (!problem) target = Recompute::blocks(blocks);
  return problem;
}

std::optional<std::string> assign_choice(const Key& key, const YAML::Node& node,
                                         const std::function<void(size_t)>& set) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  for (size_t i = 0; i < key.choices.size(); i++) {
    if (key.choices[i] == text) {
      set(i);
      return std::nullopt;
    }
  }
  if (const auto found = key.refused.find(text); found != key.refused.end()) {
    return concat(text, " ", found->second);
  }
  const std::string near = text.empty() ? "" : closest(text, key.choices);
  return concat("expected ", expected_value(key), ", found ", describe(node),
                near.empty() ? "" : concat("; did you mean ", near, "?"));
}

std::optional<std::string> assign_text(const Key& key, const YAML::Node& node, std::string& target) {
  if (!node.IsScalar()) return concat("expected ", expected_value(key), ", found ", describe(node));
  const std::string text = key.is_path ? expand_home(node.Scalar()) : node.Scalar();
  if (!key.pattern.empty() && !std::regex_match(text, std::regex(key.pattern))) {
    return concat("expected ", key.pattern_in_words, ", found ", describe(node));
  }
  target = text;
  return std::nullopt;
}

std::optional<std::string> assign_list(const Key& key, const YAML::Node& node,
                                       std::vector<std::string>& target) {
  std::vector<std::string> items;
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (auto problem = assign_text(key, item, items.emplace_back())) return problem;
      if (items.back().empty()) return "an empty text in the list";
    }
  } else if (auto problem = assign_text(key, node, items.emplace_back())) {
    return problem;
  }
  if (items.size() == 1 && items[0].empty()) items.clear();
  target = std::move(items);
  return std::nullopt;
}

std::optional<std::string> assign_text_or_list(const Key& key, const YAML::Node& node, TextOrList& target) {
  if (node.IsSequence() || (node.IsScalar() && node.Scalar().empty())) {
    return assign_list(key, node, target.emplace<std::vector<std::string>>());
  }
  return assign_text(key, node, target.emplace<std::string>());
}

// An integer or a list of them.
std::optional<std::string> assign_integers(const Key& key, const YAML::Node& node,
                                           std::vector<int64_t>& target) {
  std::vector<int64_t> items;
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (auto problem = assign_scalar(key, item, items.emplace_back())) return problem;
    }
  } else if (auto problem = assign_scalar(key, node, items.emplace_back())) {
    return problem;
  }
  target = std::move(items);
  return std::nullopt;
}

std::optional<std::string> assign_pair(const Key& key, const YAML::Node& node,
                                       std::pair<double, double>& target) {
  if (!node.IsSequence() || node.size() != 2)
    return concat("expected ", expected_value(key), ", found ", describe(node),
                  node.IsSequence() ? concat(" of ", node.size()) : "");
  std::pair<double, double> value;
  if (auto problem = assign_scalar(key, node[0], value.first)) return problem;
  if (auto problem = assign_scalar(key, node[1], value.second)) return problem;
  target = value;
  return std::nullopt;
}

template <class Number>
std::optional<std::string> assign_map(const Key& key, const YAML::Node& node, NumberMap<Number>& target) {
  if (!node.IsMap()) return concat("expected ", expected_value(key), ", found ", describe(node));
  NumberMap<Number> items;
  for (const auto& item : node) {
    const std::string name = item.first.IsScalar() ? item.first.Scalar() : "";
    if (name.empty()) return concat("expected ", expected_value(key), "; a name is ", describe(item.first));
    if (auto problem = assign_scalar(key, item.second, items.emplace_back(name, Number{}).second)) {
      return concat("'", name, "': ", *problem);
    }
  }
  target = std::move(items);
  return std::nullopt;
}

std::string number_text(int64_t value) { return std::to_string(value); }
std::string number_text(double value) { return number_as_yaml(value); }

std::string recompute_as_yaml(const Recompute& value) {
  if (value.is_automatic()) return "auto";
  if (value.gives_way()) return "fit";
  if (value == Recompute::light()) return "light";
  if (value == Recompute(true)) return "true";
  const int64_t blocks = value.of(std::numeric_limits<int64_t>::max());
  return blocks == 0 ? "false" : number_text(blocks);
}

std::string integers_as_yaml(const std::vector<int64_t>& items) {
  std::vector<std::string> texts;
  for (const int64_t item : items) texts.push_back(number_text(item));
  return "[" + join(texts) + "]";
}

template <class Number>
std::string map_as_yaml(const NumberMap<Number>& items) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : items) entries.push_back(text_as_yaml(name) + ": " + number_text(value));
  return "{" + join(entries) + "}";
}

std::string list_as_yaml(const std::vector<std::string>& items) {
  std::vector<std::string> quoted;
  for (const std::string& item : items) quoted.push_back(text_as_yaml(item));
  return "[" + join(quoted) + "]";
}

}  // namespace

std::string expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  const bool from_home = path == "~" || path.starts_with("~/");
  return from_home && home != nullptr ? home + path.substr(1) : path;
}

std::string expected_value(const Key& key) {
  if (key.choices.size() == 1) return "'" + key.choices[0] + "'";
  if (!key.choices.empty()) return "one of " + join(key.choices);
  Config config;
  return std::visit(Overloaded{[](bool*) { return "true or false"; },
                               [](int64_t*) { return "an integer"; },
                               [](std::optional<int64_t>*) { return "an integer or null"; },
                               [](double*) { return "a number"; },
                               [](std::optional<double>*) { return "a number or null"; },
                               [](std::string*) { return "text"; },
                               [](std::vector<std::string>*) { return "text or a list of text"; },
                               [](TextOrList*) { return "text or a list of text"; },
                               [](std::vector<int64_t>*) { return "an integer or a list of integers"; },
                               [](CountOrAuto*) { return "an integer, fit or auto"; },
                               [](CountOrAll*) { return "an integer or all"; },
                               [](Recompute*) { return "true, false, light, fit, auto or an integer"; },
                               [](BoolOrAuto*) { return "true, false or auto"; },
                               [](Offload*) { return kExpectedOffload; },
                               [](std::pair<double, double>*) { return "a list of two numbers"; },
                               [](NumberMap<int64_t>*) { return "a mapping of names to integers"; },
                               [](NumberMap<double>*) { return "a mapping of names to numbers"; },
                               [](std::vector<DataSource>*) { return "a path or a list of paths"; },
                               [](EvalData*) { return "a path, a list of paths or a share"; },
                               [](const Choice&) { return ""; }},
                    key.field(config));
}

std::string allowed_range(const Key& key) {
  return concat(lower_bound(key), key.minimum && key.maximum ? " and " : "", upper_bound(key));
}

bool may_be_empty(const Key& key) {
  Config config;
  return std::visit(
      Overloaded{[](std::optional<int64_t>*) { return true; }, [](std::optional<double>*) { return true; },
                 [](std::string* text) { return text->empty(); },
                 [](std::vector<std::string>*) { return true; }, [](TextOrList*) { return true; },
                 [](std::vector<int64_t>*) { return true; }, [](NumberMap<int64_t>*) { return true; },
                 [](NumberMap<double>*) { return true; }, [](std::vector<DataSource>*) { return true; },
                 [](EvalData*) { return true; }, [](Offload*) { return true; },
                 [](const auto&) { return false; }},
      key.field(config));
}

bool takes_text(const Key& key) {
  Config config;
  const Field field = key.field(config);
  return key.choices.empty() && (std::holds_alternative<std::string*>(field) ||
                                 std::holds_alternative<std::vector<std::string>*>(field) ||
                                 std::holds_alternative<TextOrList*>(field) ||
                                 std::holds_alternative<std::vector<DataSource>*>(field) ||
                                 std::holds_alternative<EvalData*>(field));
}

std::optional<std::string> assign(const Key& key, const YAML::Node& node, Config& config) {
  const bool is_default = !key.default_word.empty() && is_word(node, key.default_word.c_str());
  if (node.IsNull() || is_default) {
    if (!is_default && !may_be_empty(key)) {
      return concat("expected ", expected_value(key), ", found nothing; leave the line out for the default, ",
                    all_defaults(key));
    }
    reset(key, config);
    return std::nullopt;
  }
  return std::visit(
      Overloaded{[&](bool* value) { return assign_scalar(key, node, *value); },
                 [&](int64_t* value) { return assign_scalar(key, node, *value); },
                 [&](double* value) { return assign_scalar(key, node, *value); },
                 [&](std::optional<int64_t>* value) { return assign_scalar(key, node, value->emplace()); },
                 [&](std::optional<double>* value) { return assign_scalar(key, node, value->emplace()); },
                 [&](std::string* value) {
                   if (key.choices.empty()) return assign_text(key, node, *value);
                   return assign_choice(key, node, [&](size_t index) { *value = key.choices[index]; });
                 },
                 [&](std::vector<std::string>* value) { return assign_list(key, node, *value); },
                 [&](TextOrList* value) { return assign_text_or_list(key, node, *value); },
                 [&](std::vector<int64_t>* value) { return assign_integers(key, node, *value); },
                 [&](CountOrAuto* value) {
                   return assign_or_word<int64_t>(key, node, "auto", CountOrAuto::automatic(), *value);
                 },
                 [&](CountOrAll* value) {
                   return assign_or_word<int64_t>(key, node, "all", CountOrAll::all(), *value);
                 },
                 [&](Recompute* value) { return assign_recompute(key, node, *value); },
                 [&](BoolOrAuto* value) {
                   return assign_or_word<bool>(key, node, "auto", BoolOrAuto::automatic(), *value);
                 },
                 [&](Offload* value) { return assign_offload(node, *value); },
                 [&](std::pair<double, double>* value) { return assign_pair(key, node, *value); },
                 [&](NumberMap<int64_t>* value) { return assign_map(key, node, *value); },
                 [&](NumberMap<double>* value) { return assign_map(key, node, *value); },
                 [&](std::vector<DataSource>* value) { return assign_sources(node, *value); },
                 [&](EvalData* value) { return assign_eval_data(node, *value); },
                 [&](const Choice& choice) { return assign_choice(key, node, choice.set); }},
      key.field(config));
}

void reset(const Key& key, Config& config) {
  Config defaults;
  const Field source = key.field(defaults), target = key.field(config);
  std::visit(Overloaded{[&](const Choice& choice) { choice.set(std::get<Choice>(source).get()); },
                        [&](auto* value) { *value = *std::get<decltype(value)>(source); }},
             target);
}

std::string describe(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a mapping";
  if (!node.IsScalar() || (node.Scalar().empty() && !is_quoted(node))) return "nothing";
  return (is_quoted(node) ? "the text '" : "'") + without_secrets(node.Scalar()) + "'";
}

std::string value_as_yaml(const Key& key, const Config& config) {
  Config copy = config;  // key.field creates an optional section
  return std::visit(
      Overloaded{[](bool* value) { return std::string(*value ? "true" : "false"); },
                 [](int64_t* value) { return std::to_string(*value); },
                 [](double* value) { return number_as_yaml(*value); },
                 [](std::optional<int64_t>* value) { return *value ? std::to_string(**value) : "null"; },
                 [](std::optional<double>* value) { return *value ? number_as_yaml(**value) : "null"; },
                 [](std::string* value) { return text_as_yaml(*value); },
                 [](std::vector<std::string>* value) { return list_as_yaml(*value); },
                 [](TextOrList* value) {
                   const auto* list = std::get_if<std::vector<std::string>>(value);
                   return list != nullptr ? list_as_yaml(*list) : text_as_yaml(std::get<std::string>(*value));
                 },
                 [](std::vector<int64_t>* value) { return integers_as_yaml(*value); },
                 [](CountOrAuto* value) {
                   return value->is_automatic() ? std::string("auto")
                          : value->gives_way()  ? std::string("fit")
                                                : std::to_string(int64_t{*value});
                 },
                 [](CountOrAll* value) { return value->is_all() ? "all" : std::to_string(value->of(0)); },
                 [](Recompute* value) { return recompute_as_yaml(*value); },
                 [](BoolOrAuto* value) {
                   return std::string(value->is_automatic() ? "auto" : value->of(false) ? "true" : "false");
                 },
                 [](Offload* value) { return offload_as_yaml(*value); },
                 [](std::pair<double, double>* value) {
                   return concat("[", number_as_yaml(value->first), ", ", number_as_yaml(value->second), "]");
                 },
                 [](NumberMap<int64_t>* value) { return map_as_yaml(*value); },
                 [](NumberMap<double>* value) { return map_as_yaml(*value); },
                 [](std::vector<DataSource>* value) { return sources_as_yaml(*value); },
                 [](EvalData* value) { return eval_data_as_yaml(*value); },
                 [&](const Choice& choice) { return text_as_yaml(key.choices.at(choice.get())); }},
      key.field(copy));
}

}  // namespace trainer::config
