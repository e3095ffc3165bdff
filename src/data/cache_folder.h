// The cache folder: files that are derived from data files once and kept (unpacked files, indexes).
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>

namespace trainer {

// Part of the name of a file that is not complete yet.
inline constexpr const char* kUnfinished = ".unfinished";

// Returns data.cache, or trainer/ in $XDG_CACHE_HOME, or in ~/.cache when that is not set. The folder need
// not exist.
std::filesystem::path cache_folder(const std::string& configured);

// Writes PATH in the cache and creates its folder. Writes to a temporary name that is unique to this process
// and then renames, so that several processes may make the same file. Removes unfinished files older than a
// day from the folder, and files that were not used for 90 days. Throws FormatError.
void write_to_cache(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

// Removes those of the folder's folders that are called by a checksum and of which no file was used for 90
// days.
void tidy_folders(const std::filesystem::path& folder);

// Marks this file of the cache as still used.
void mark_used(const std::filesystem::path& path);

}  // namespace trainer
