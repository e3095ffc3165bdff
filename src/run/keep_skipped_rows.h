// The rows that data.bad_rows: skip leaves out.
#pragma once

#include <filesystem>

#include "trainer/data/dataset.h"

namespace trainer {

// Writes skipped_rows.jsonl into the output directory, where there are any: file, line, problem, the
// beginning of the row. A file of an earlier start is replaced or removed. What cannot be written is a
// warning.
void keep_skipped_rows(const Dataset& train, const Dataset* eval, const std::filesystem::path& output_dir);

}  // namespace trainer
