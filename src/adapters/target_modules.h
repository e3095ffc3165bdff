// Chooses which modules get an adapter, and of which kind.
#pragma once

#include <string>
#include <vector>

#include "trainer/formats/peft.h"
#include "trainer/models/model.h"
#include "trainer/nn/linear.h"

#include "nn/embedding.h"

namespace trainer {

// A module that can have an adapter. One of the two pointers is set, the other is null.
struct Target {
  std::string name;
  Linear* linear;
  Embedding* embedding;
};

// Returns the modules that get an adapter, by PEFT's rules (peft, tuners_utils.py,
// check_target_module_exists). target_modules: a list holds whole names or suffixes after a dot; a string is
// a regular expression for the whole name; "all-linear" is every linear layer except the output head; an
// empty list is the model's default. Modules named in exclude_modules and modules_to_save are left out, and
// so are layers that are not in layers_to_transform (if that is set).
// `every_entry_matches`: an entry of the list, or a pattern of rank_pattern or alpha_pattern, that matches
// nothing is an error (someone wrote it for this model). Throws ConfigError in that case, if no module is
// left, and for a module that cannot have an adapter.
std::vector<Target> find_targets(Model& model, const AdapterConfig& config, bool every_entry_matches);

// Returns rank, scale and kind of the adapter on the module with this name.
LoraOptions lora_options(const AdapterConfig& config, const std::string& module);

}  // namespace trainer
