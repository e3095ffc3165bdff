// The configuration of the run that a model comes from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// Returns the file with the configuration of the run whose result or checkpoint this directory is; nothing if
// it is another model, or an export, which stands for itself.
std::optional<std::filesystem::path> config_file_of_run(const std::filesystem::path& model);

// Returns that configuration as it reads and answers rows: its data, evaluation and type of weights. Where
// the run computed, and in how much memory, is left out. The chat template is that of the result. Nothing if
// there is none, or with a warning, if it cannot be read. `overrides`: as in load_config().
std::optional<Config> config_of_run(const std::filesystem::path& model,
                                    const std::vector<std::string>& overrides = {});

}  // namespace trainer
