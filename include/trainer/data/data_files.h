// The files of a set of rows.
#pragma once

#include <filesystem>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// The file; those that a pattern matches; or all data files in a folder, however deep: always sorted by name.
// Throws DataError when there are none.
std::vector<std::filesystem::path> data_files(const DataSource& source);

}  // namespace trainer
