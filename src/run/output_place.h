// Where a run may put its files.
#pragma once

#include <filesystem>

namespace trainer {

// Returns whether `path` is `directory` or lies below it.
bool lies_below(const std::filesystem::path& path, const std::filesystem::path& directory);

// Throws OutputDirectoryError when a run would spread its files among those of something else: the directory
// is /, or it is the user's home, a directory of the system or the root of a repository, and holds what no
// run wrote.
void refuse_shared_place(const std::filesystem::path& directory);

}  // namespace trainer
