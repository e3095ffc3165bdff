// What to say of a key that does not exist.
#pragma once

#include <string>

namespace trainer::config {

// "unknown key; did you mean training.batch_size?", or what a foreign or later name is here.
std::string unknown_key(const std::string& section, const std::string& name);

// What a value that other trainers have for a section or a key means here; empty: nothing is known of it.
std::string advice_for_value(const std::string& name, const std::string& value);

}  // namespace trainer::config
