// Looks at the columns of Parquet files before they are unpacked, which takes minutes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/text/tokenizer.h"

#include "data/row_encoder.h"
#include "data/used_columns.h"

namespace trainer {

// Checks that the first rows of each Parquet file which is not in the cache yet have the columns in use, and
// text in them. Throws DataError that names the row and the column. Returns the encoder if the first of all
// rows was read for that; else nullptr.
std::unique_ptr<RowEncoder> check_columns(const std::vector<std::filesystem::path>& files,
                                          const std::filesystem::path& cache, const UsedColumns& used,
                                          const DataConfig& config, const std::string& model,
                                          const Tokenizer& tokenizer, bool encoder_decoder);

}  // namespace trainer
