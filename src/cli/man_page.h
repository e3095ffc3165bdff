// Manual pages, from the help of the commands.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace trainer::cli {

// Returns the page of a command in the language of man(7), or of the program if `command` is `app` itself.
std::string man_page(const CLI::App& app, const CLI::App& command);

}  // namespace trainer::cli
