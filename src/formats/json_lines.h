// Which files are JSON lines, and can be read without the readers of training data.
#pragma once

#include <filesystem>

namespace trainer {

// Returns false for a folder, a pattern of files, a table (.csv, .tsv), .parquet, a packed file (.gz, .zst)
// and a file that is one JSON array; true for all others, also those that do not exist.
bool is_json_lines(const std::filesystem::path& file);

}  // namespace trainer
