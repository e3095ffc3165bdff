// The commands of the program. One is a file that adds its options, a row of the table in commands.cpp, and a
// page (docs/dev/adding-a-command.md).
#pragma once

#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "trainer/config/config.h"

namespace trainer::cli {

struct Command {
  const char* name;
  const char* help;                // one line
  void (*add)(CLI::App& command);  // adds its options, and what it does: here, or by run_in_library()
};

// Returns the commands in the order in which --help lists them.
std::span<const Command> commands();

// Returns those that are listed.
std::vector<const CLI::App*> listed_commands(const CLI::App& app);

// Returns whether a command's words are configuration keys: key=value.
bool takes_keys(const CLI::App& command);

// CLI11 would name a missing option before an unknown one, which is more likely the mistake: so it is asked
// for here.
void require_option(const std::string& value, const std::string& command, const std::string& option);

// Warns of keys that have no effect. A run does so itself, when it knows its rows.
void warn_of_idle_keys(const Config& config);

}  // namespace trainer::cli
