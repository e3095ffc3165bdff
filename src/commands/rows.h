// The rows of files of every kind that training reads.
#pragma once

#include <string>

#include "commands/options.h"

namespace trainer {

// Calls `visit` for each row, as JSON on one line, with its place. `file`: or a folder, or a pattern. In a
// table all values are text. `cache`: as data.cache. Throws DataError that names the row.
void for_each_row(const std::string& file, const std::string& cache, const RowsOptions::Visit& visit);

}  // namespace trainer
