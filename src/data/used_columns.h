// Which columns of a Parquet file are read.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// `columns` and those of `also` that exist; all of them if one of `columns` is missing or none is named.
struct UsedColumns {
  std::vector<std::string> columns = {}, also = {};
};

// Returns the columns that the configuration names, or those of a conversation in messages, which may be
// there.
UsedColumns used_columns(const DataConfig& config);

}  // namespace trainer
