// Compressed data files.
#pragma once

#include <filesystem>

namespace trainer {

// The path itself; of a file whose name ends in .gz or .zst the unpacked one, which is made in the cache when
// it is not there: once for each content. Throws DataError for a damaged file, and where there is no room for
// it in the cache or that cannot be written.
std::filesystem::path unpacked(const std::filesystem::path& path, const std::filesystem::path& cache);

}  // namespace trainer
