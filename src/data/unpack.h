// Unpacks compressed data files, and writes Parquet files as JSON lines.
#pragma once

#include <filesystem>
#include <string>

#include "data/used_columns.h"

namespace trainer {

// Returns the path itself; for a file that ends in .gz, .zst or .parquet, the path of the unpacked file,
// which is made in the cache once for each content. Throws DataError for a damaged file, and when the cache
// has no room or cannot be written.
std::filesystem::path unpacked(const std::filesystem::path& path, const std::filesystem::path& cache,
                               const UsedColumns& used = {});

// Returns up to a hundred rows from the beginning of a Parquet file that is not in the cache yet, as JSON
// lines; "" of other files. Reads some pages only. Throws DataError.
std::string first_rows_before_unpacking(const std::filesystem::path& path, const std::filesystem::path& cache,
                                        const UsedColumns& used);

}  // namespace trainer
