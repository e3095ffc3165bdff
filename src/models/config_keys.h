// The keys of config.json.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace trainer {

// Throws FormatError for a setting of any model that would change its mathematics and is not supported. Keys
// that neither the model_type reads nor the list of those without effect has are named in a warning, once;
// `where` begins it.
void check_config_keys(const nlohmann::json& config, const std::string& where);

}  // namespace trainer
