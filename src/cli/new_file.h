// Writes a file of the user's that must not exist yet.
#pragma once

#include <string>

namespace trainer::cli {

// Throws ConfigError, which begins with the command's name, if something is there, or if its folder is
// missing.
void require_new_file(const std::string& path, const std::string& command);

// Writes the whole file or nothing, and never over another file. Throws ConfigError as above, FormatError
// when it cannot be written.
void write_new_file(const std::string& path, const std::string& content, const std::string& command);

}  // namespace trainer::cli
