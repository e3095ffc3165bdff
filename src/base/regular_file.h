// Opens files for reading, but only regular files.
#pragma once

#include <filesystem>

namespace trainer {

// Opens a file for reading and returns the descriptor, which the caller closes. Throws FormatError when the
// file is missing, when it is a link that leads nowhere or in a circle, and when it is not a regular file:
// opening a named pipe could wait forever.
int open_regular_file(const std::filesystem::path& path);

// Returns whether a directory entry of that name exists. This includes a link that leads nowhere;
// open_regular_file() then reports it.
bool has_entry(const std::filesystem::path& path);

}  // namespace trainer
