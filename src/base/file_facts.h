// Finds files by name, pattern or folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
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

// Opens files for reading, but only regular files.

// Opens a file for reading and returns the descriptor, which the caller closes. Throws FormatError when the
// file is missing, when it is a link that leads nowhere or in a circle, and when it is not a regular file:
// opening a named pipe could wait forever.
int open_regular_file(const std::filesystem::path& path);

// Returns whether a directory entry of that name exists. This includes a link that leads nowhere;
// open_regular_file() then reports it.
bool has_entry(const std::filesystem::path& path);

// The free space of a file system, and where it lies.

// Returns how many bytes this user may still write to the file system of `path`, an existing folder; quotas
// may allow less. Throws FormatError when the system does not report it.
int64_t free_space(const std::filesystem::path& path);

// Returns the directory itself, or the nearest one above it that exists.
std::filesystem::path existing_part(const std::filesystem::path& directory);

// Returns whether two existing folders are on the same file system. False when the system does not say.
bool share_a_disk(const std::filesystem::path& one, const std::filesystem::path& other);

// Returns whether the files of the file system of `path` lie in memory (tmpfs). False when the system does
// not say.
bool lies_in_memory(const std::filesystem::path& path);

// Finds files that come with the program.

// `name` is relative to the source tree ("configs/tiny_t5.yaml"). Looks next to the build folder of the
// program, and in the installation. Returns nullopt when the file is missing.
std::optional<std::filesystem::path> find_shipped(const std::filesystem::path& name);

// The same, after a look in the working directory.
std::optional<std::filesystem::path> find_installed(const std::filesystem::path& name);

}  // namespace trainer
