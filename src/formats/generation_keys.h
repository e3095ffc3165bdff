// The keys of generation_config.json.
#pragma once

#include <string_view>

namespace trainer {

// Returns whether Transformers 5 has a setting of this name. If there is no generation_config.json, it reads
// them from config.json.
bool is_generation_key(std::string_view key);

}  // namespace trainer
