// Free space on a file system.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trainer {

// Returns how many bytes this user may still write to the file system of `path`, an existing folder; quotas
// may allow less. Throws FormatError when the system does not report it.
int64_t free_space(const std::filesystem::path& path);

}  // namespace trainer
