// Files that are opened for reading: only such as end.
#pragma once

#include <filesystem>

namespace trainer {

// Opens a file for reading; the caller closes the descriptor. Throws FormatError for what is missing, for a
// link that leads nowhere or in a circle, and for what is no regular file: a named pipe would be waited for
// without end.
int open_regular_file(const std::filesystem::path& path);

// Whether there is an entry of that name: also a link that leads nowhere, which open_regular_file() names.
bool has_entry(const std::filesystem::path& path);

}  // namespace trainer
