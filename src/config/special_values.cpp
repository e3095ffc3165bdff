#include "config/special_values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "trainer/base/strings.h"

#include "config/value.h"

namespace trainer::config {
namespace {

// In the order of the dumped list.
constexpr std::array kOffloadParts{std::pair{"optimizer", &Offload::optimizer},
                                   std::pair{"weights", &Offload::weights},
                                   std::pair{"activations", &Offload::activations}};

std::string name_in(const YAML::Node& node) { return node.IsScalar() ? node.Scalar() : ""; }

constexpr const char* kExpected =
    "expected a path, a list of paths or of {path: PATH, weight: NUMBER, loss_weight: NUMBER}, found ";

constexpr int64_t kLargestWeight = 1'000'000;

std::optional<double> number(const std::string& text) {
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc{} || end != last) return std::nullopt;
  return value;
}

std::optional<std::string> read_path(const YAML::Node& node, std::vector<DataSource>& sources) {
  if (!node.IsScalar()) return kExpected + describe(node);
  sources.emplace_back(expand_home(node.Scalar()));
  return std::nullopt;
}

std::optional<std::string> read_mapping(const YAML::Node& node, std::vector<DataSource>& sources) {
  std::optional<std::string> path;
  double weight = 1, loss_weight = 1;
  for (const auto& entry : node) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (name == "path" && entry.second.IsScalar()) {
      path = expand_home(entry.second.Scalar());
    } else if (name == "weight" || name == "loss_weight") {
      const auto value = entry.second.IsScalar() ? number(entry.second.Scalar()) : std::nullopt;
      if (!value || !std::isfinite(*value) || *value <= 0 || *value > kLargestWeight)
        return concat("a ", name, " must be above 0 and at most ", grouped(kLargestWeight), ", found ",
                      describe(entry.second));
      (name == "weight" ? weight : loss_weight) = *value;
    } else {
      return concat(kExpected, "a mapping with '", name, "'");
    }
  }
  if (!path) return concat(kExpected, "a mapping without a path");
  sources.emplace_back(*path, weight, loss_weight);
  return std::nullopt;
}

std::optional<std::string> read_source(const YAML::Node& node, std::vector<DataSource>& sources) {
  auto problem = node.IsMap() ? read_mapping(node, sources) : read_path(node, sources);
  if (!problem && sources.back().path.empty()) problem = "an empty path";
  return problem;
}

}  // namespace

std::optional<std::string> assign_offload(const YAML::Node& node, Offload& target) {
  Offload parts;
  parts.automatic = name_in(node) == "auto";
  const auto add = [&](const YAML::Node& item) -> std::optional<std::string> {
    for (const auto& [name, member] : kOffloadParts) {
      if (name_in(item) != name) continue;
      parts.*member = true;
      return std::nullopt;
    }
    return concat("expected ", kExpectedOffload, ", found ", describe(item));
  };
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (auto problem = add(item)) return problem;
    }
  } else if (!parts.automatic) {
    if (auto problem = add(node)) return problem;
  }
  target = parts;
  return std::nullopt;
}

std::string offload_as_yaml(const Offload& value) {
  if (value.automatic) return "auto";
  std::vector<std::string> names;
  for (const auto& [name, member] : kOffloadParts) {
    if (value.*member) names.emplace_back(name);
  }
  return concat("[", join(names), "]");
}

std::optional<std::string> assign_sources(const YAML::Node& node, std::vector<DataSource>& target) {
  std::vector<DataSource> sources;
  const bool nothing = node.IsScalar() && node.Scalar().empty();
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      if (auto problem = read_source(item, sources)) return problem;
    }
  } else if (!nothing) {
    if (auto problem = read_source(node, sources)) return problem;
  }
  target = std::move(sources);
  return std::nullopt;
}

std::optional<std::string> assign_eval_data(const YAML::Node& node, EvalData& target) {
  if (const auto share = node.IsScalar() ? number(node.Scalar()) : std::nullopt) {
    if (!(*share > 0 && *share < 1))
      return concat("a share of data.train must be above 0 and below 1, found ", node.Scalar());
    target = {{}, *share};
    return std::nullopt;
  }
  std::vector<DataSource> sources;
  if (auto problem = assign_sources(node, sources)) return problem;
  for (const DataSource& source : sources) {
    if (source.weight != 1 || source.loss_weight != 1)
      return concat("only sets of data.train can have a weight; '", source.path, "' has one");
  }
  target = {std::move(sources), 0};
  return std::nullopt;
}

std::string sources_as_yaml(const std::vector<DataSource>& sources) {
  std::vector<std::string> items;
  for (const DataSource& source : sources) {
    const std::string path = text_as_yaml(source.path);
    std::string more;
    if (source.weight != 1) more += ", weight: " + number_as_yaml(source.weight);
    if (source.loss_weight != 1) more += ", loss_weight: " + number_as_yaml(source.loss_weight);
    items.push_back(more.empty() ? path : concat("{path: ", path, more, "}"));
  }
  return "[" + join(items) + "]";
}

std::string eval_data_as_yaml(const EvalData& eval) {
  return eval.held_out > 0 ? number_as_yaml(eval.held_out) : sources_as_yaml(eval.sources);
}

}  // namespace trainer::config
