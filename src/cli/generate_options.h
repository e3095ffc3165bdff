// Options that `trainer generate` and `trainer chat` share.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "commands/entry_points.h"

namespace trainer::cli {

// How tokens are chosen. `options` and `greedy` must outlive the parsing of the command line.
void add_choices(CLI::App& command, GenerateOptions& options, bool& greedy);
// Device, type, memory, threads.
void add_machine(CLI::App& command, GenerateOptions& options);

// Fills in what the choices mean together. Throws ConfigError, which begins with the command's name, where
// they contradict each other.
void resolve_choices(GenerateOptions& options, bool greedy, const std::string& command);

}  // namespace trainer::cli
