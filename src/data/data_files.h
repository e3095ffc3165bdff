// The files of a set of rows.
#pragma once

#include <filesystem>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// Returns the file itself, the files that match a pattern, or all data files in a folder and its subfolders,
// sorted by name. Throws DataError when there are none.
std::vector<std::filesystem::path> data_files(const DataSource& source);

}  // namespace trainer
