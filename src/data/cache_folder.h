// The folder of what is made once of data files and kept: unpacked files, indexes.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace trainer {

// In the names of files that are not whole yet.
inline constexpr const char* kUnfinished = ".unfinished";

// data.cache, or trainer/ in $XDG_CACHE_HOME, which is ~/.cache where it is not set. It need not exist.
std::filesystem::path cache_folder(const std::string& configured);

// Writes PATH in the cache, making its folder: aside and under a name of this process's own, so that several
// processes may make the same file, then renamed. Removes from the folder what others left behind more than a
// day ago, and what nobody used for 90 days. Throws FormatError.
void write_to_cache(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

// Says that this file of the cache is still used.
void mark_used(const std::filesystem::path& path);

}  // namespace trainer
