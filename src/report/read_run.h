// What a page shows of a run, read from the files in its directory.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

#include "report/report.h"

namespace trainer {

// Throws FormatError when metrics.jsonl is missing or cannot be read. What else is missing is left out.
nlohmann::ordered_json read_run(const std::filesystem::path& directory, ReportedState state);

// The answers to the same inputs in different evaluations, from OUT/predictions: {"steps": [...], "samples":
// [{"origin", "input", "target", "answers": [...]}]}. Only some of the steps and samples, shortened.
// Null if there are none. An answer is null where the evaluation did not have the sample.
nlohmann::ordered_json read_predictions(const std::filesystem::path& directory);

// Returns at most `bytes` bytes of UTF-8 text, with "…" if it was longer.
std::string shortened(const std::string& text, size_t bytes);

}  // namespace trainer
