// Unpacks compressed data files, and writes the columns in use of Parquet files as JSON lines.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/text/tokenizer.h"

#include "data/row_encoder.h"

namespace trainer {

// The columns of a Parquet file that are read: `columns` and those of `also` that exist; all of them if one
// of `columns` is missing or none is named.
struct UsedColumns {
  std::vector<std::string> columns = {}, also = {};
};

// Returns the columns that the configuration names, or those of a conversation in messages, which may be
// there.
UsedColumns used_columns(const DataConfig& config);

// Returns the path itself; for a file that ends in .gz, .zst or .parquet, the path of the unpacked file,
// which is made in the cache once for each content. Throws DataError for a damaged file, and when the cache
// has no room or cannot be written.
std::filesystem::path unpacked(const std::filesystem::path& path, const std::filesystem::path& cache,
                               const UsedColumns& used = {});

// Returns up to a hundred rows from the beginning of a Parquet file that is not in the cache yet, as JSON
// lines; "" of other files. Reads some pages only. Throws DataError.
std::string first_rows_before_unpacking(const std::filesystem::path& path, const std::filesystem::path& cache,
                                        const UsedColumns& used);

// Before Parquet files are unpacked, which takes minutes: checks that the first rows of each Parquet file
// which is not in the cache yet have the columns in use, and text in them. Throws DataError that names the
// row and the column. Returns the encoder if the first of all rows was read for that; else nullptr.
std::unique_ptr<RowEncoder> check_columns(const std::vector<std::filesystem::path>& files,
                                          const std::filesystem::path& cache, const UsedColumns& used,
                                          const DataConfig& config, const std::string& model,
                                          const Tokenizer& tokenizer, bool encoder_decoder);

}  // namespace trainer
