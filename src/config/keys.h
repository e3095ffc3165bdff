// The names of all configuration keys, for completion in a shell.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"

namespace trainer {

struct KeyValues {
  std::string section;                // "" at the top level
  std::string name;                   // without its section
  std::vector<std::string> values;    // to be offered: all that it may be, or those that are usual
  bool clear_without_section = true;  // the section may be left out on the command line
};

// Returns the keys in the order of docs/config.md.
std::vector<KeyValues> all_keys();

}  // namespace trainer

namespace trainer::config {

// Defaults that depend on other keys.

// Gives each key that was not set the default that goes with the values of other keys.
void set_dependent_defaults(Config& config);

// Returns the value that the key would have if nothing set it, as YAML.
std::string default_here(const Key& key, const Config& config);

// Whether the key's value follows from others, because it was left out or its default_word was given.
bool is_automatic(const Key& key, const Config& config);
// Whether giving the key would change what follows from it: training.eval_steps, where evaluations do not go
// by steps.
bool stays_unsaid(const Key& key, const Config& config);

}  // namespace trainer::config
