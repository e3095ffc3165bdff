// What may stand at the end of a command line that is being typed.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace trainer::cli {

// Returns the words that the last word of `line` may become: commands, options, their values, configuration
// keys
// ("training.batch_size="), values of keys, presets. Empty where files are meant. A line that ends in a space
// ends in an empty word. `app` has all commands.
std::vector<std::string> candidates(const CLI::App& app, const std::string& line);

}  // namespace trainer::cli
