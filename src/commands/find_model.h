// The model of a plan, which needs no weights.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

// Returns an existing directory or file, else the model card of this name that comes with the program. Throws
// ConfigError, which names model.path, when there is neither.
std::filesystem::path find_model(const std::string& path);

}  // namespace trainer
