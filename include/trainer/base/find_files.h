// Files by name, pattern or folder.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// The files that a path stands for, sorted by name: of a folder those in it, however deep, whose names end in
// one of `endings` (what begins with a dot is left out); of a pattern with *, ? or [...] all that match; else
// the file itself. What is there under that very name is no pattern. Empty when there is none. A folder that
// links lead to once more counts once; what cannot be listed, and a link that leads nowhere and has one of
// the endings, is a DataError, so that no data are lost silently.
std::vector<std::filesystem::path> find_files(const std::string& path,
                                              std::span<const std::string_view> endings);

}  // namespace trainer
