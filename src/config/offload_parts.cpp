#include "config/offload_parts.h"

#include <array>
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

}  // namespace trainer::config
