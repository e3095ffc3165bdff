// What a file system has room for, and where it lies.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trainer {

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

}  // namespace trainer
