// The names of all configuration keys, for completion in a shell.
#pragma once

#include <string>
#include <vector>

namespace trainer {

struct KeyValues {
  std::string section;                // "" at the top level
  std::string name;                   // without its section
  std::vector<std::string> values;    // all that it may be; empty: anything
  bool only_one_of_this_name = true;  // the section may be left out on the command line
};

// Returns the keys in the order of docs/config.md.
std::vector<KeyValues> all_keys();

}  // namespace trainer
