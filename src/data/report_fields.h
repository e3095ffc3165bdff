// The counts of a file's rows, as stored in its index.
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/data/report.h"

namespace trainer {

// Everything that Survey counts, and the position and line of each named row.
nlohmann::json stored_counts(const DataReport& counts);
// Throws nlohmann::json::exception for other JSON.
DataReport counts_from(const nlohmann::json& stored);

}  // namespace trainer
