// Finds files by name, pattern or folder.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Returns the files that `path` means, sorted by name. For a folder: the files in it and its subfolders whose
// names end in one of `endings`, without names that begin with a dot. For a pattern with *, ? or [...]: all
// matches. Otherwise: the file itself. A path that exists under exactly this name is not a pattern. Returns
// an empty list when nothing is found. A folder that is reachable through several links counts once. Throws
// DataError when a folder cannot be read, or when a link with one of the endings leads nowhere, so that no
// data are lost silently.
std::vector<std::filesystem::path> find_files(const std::string& path,
                                              std::span<const std::string_view> endings);

}  // namespace trainer
