#include "config/keys.h"

#include "config/schema.h"

namespace trainer {

std::vector<KeyValues> all_keys() {
  std::vector<KeyValues> keys;
  Config config;
  for (const config::Section& section : config::schema()) {
    for (const config::Key& key : section.keys) {
      std::vector<std::string> values = key.choices;
      if (std::holds_alternative<bool*>(key.field(config))) values = {"true", "false"};
      keys.push_back({key.section, key.name, std::move(values), config::keys_named(key.name).size() == 1});
    }
  }
  return keys;
}

}  // namespace trainer
