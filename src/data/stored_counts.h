// The counts of a file's rows, as they are kept in its index.
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/data/report.h"

namespace trainer {

// All that Survey counts, and what rows are named by: their places in the file and the lines there.
nlohmann::json stored_counts(const DataReport& counts);
// Throws nlohmann::json::exception for other JSON.
DataReport counts_from(const nlohmann::json& stored);

}  // namespace trainer
