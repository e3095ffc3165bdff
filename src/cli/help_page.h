// The pages of docs/, for reading on a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trainer::cli {

struct HelpTopic {
  std::string name;   // "exit-codes"
  std::string title;  // "Exit codes"
};
// Returns the pages that come with the program, by name; none if they are not installed.
std::vector<HelpTopic> help_topics();

// Returns a page for the width of the terminal: links as their text, tables as columns. Nothing if there is
// none of this name.
std::optional<std::string> help_page(const std::string& topic);

// Returns what docs/errors.md says of the code of an error, such as "disk-full"; nothing if it is none.
std::optional<std::string> error_page(const std::string& code);

// Returns what docs/exit-codes.md says of a code, such as "5"; nothing if it does not list it.
std::optional<std::string> exit_code_page(const std::string& code);

}  // namespace trainer::cli
