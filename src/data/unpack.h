// Unpacks compressed data files.
#pragma once

#include <filesystem>

namespace trainer {

// Returns the path itself; for a file that ends in .gz or .zst, the path of the unpacked file, which is made
// in the cache once for each content. Throws DataError for a damaged file, and when the cache has no room or
// cannot be written.
std::filesystem::path unpacked(const std::filesystem::path& path, const std::filesystem::path& cache);

}  // namespace trainer
