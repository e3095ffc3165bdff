// Unpacks compressed data files.
#pragma once

#include <filesystem>

namespace trainer {

// Returns the path itself, or for a file that ends in .gz or .zst the path of the unpacked file. That is made
// in the cache if it is missing, once per content. Throws DataError for a damaged file, and when the cache
// has no room or cannot be written.
std::filesystem::path unpacked(const std::filesystem::path& path, const std::filesystem::path& cache);

}  // namespace trainer
