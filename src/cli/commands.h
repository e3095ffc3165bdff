// The commands of the program: each adds itself, with its options, to the command line.
#pragma once

#include <CLI/CLI.hpp>

namespace trainer::cli {

void add_train_command(CLI::App& app);
void add_config_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);

}  // namespace trainer::cli
