// Which modules get an adapter, and of which kind.
#pragma once

#include <string>
#include <vector>

#include "trainer/formats/peft.h"
#include "trainer/models/model.h"
#include "trainer/nn/embedding.h"
#include "trainer/nn/linear.h"

namespace trainer {

// A module that can have an adapter: one of the two.
struct Target {
  std::string name;
  Linear* linear;
  Embedding* embedding;
};

// PEFT's rules (peft, tuners_utils.py, check_target_module_exists). target_modules: a list holds whole names
// or suffixes after a dot; a string is a regular expression for the whole name; "all-linear" is every linear
// layer but the output head; an empty list is the model's default. Left out is what exclude_modules and
// modules_to_save name, and layers that layers_to_transform does not. `every_entry_matches`: an entry of a
// list, or a pattern of rank_pattern or alpha_pattern, that means nothing is an error (someone has written it
// for this model). Throws ConfigError when that is so, when nothing is left, and for a module that cannot
// have an adapter.
std::vector<Target> find_targets(Model& model, const AdapterConfig& config, bool every_entry_matches);

// Rank, scale and kind of the adapter on the module of this name.
LoraOptions lora_options(const AdapterConfig& config, const std::string& module);

}  // namespace trainer
