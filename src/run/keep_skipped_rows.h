// The rows that data.bad_rows: skip leaves out.
#pragma once

#include <filesystem>

#include "trainer/data/dataset.h"

namespace trainer {

// Writes skipped_rows.jsonl into the output directory if rows were skipped: file, line, problem, and the
// beginning of the row. A file of an earlier start is replaced or removed. If it cannot be written, a warning
// is logged.
void keep_skipped_rows(const Dataset& train, const Dataset* eval, const std::filesystem::path& output_dir);

}  // namespace trainer
