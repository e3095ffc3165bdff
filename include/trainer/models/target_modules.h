// Which linear layers `target_modules` means.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "trainer/models/model.h"
#include "trainer/nn/linear.h"

namespace trainer {

using TargetModules = std::variant<std::string, std::vector<std::string>>;

struct NamedLinear {
  std::string name;
  Linear* linear;
};

// PEFT's rules (peft, tuners_utils.py, check_target_module_exists): a list holds whole names or suffixes
// after a dot; a string is a regular expression for the whole name; "all-linear" is every linear layer but
// the output head. Throws ConfigError when an entry matches nothing, or something that cannot have an
// adapter.
std::vector<NamedLinear> find_targets(Model& model, const TargetModules& targets);

}  // namespace trainer
