// The page that shows runs (docs/curves.md): one HTML file with everything in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trainer {

// What is known about a run that has not finished. `unknown`: it is guessed from the age of metrics.jsonl.
enum class ReportedState { unknown, running, stopped };

// Returns the page for the runs in these directories, from the files in them. Several runs are compared.
// Files other than metrics.jsonl may be missing or damaged; the page then says so. Throws FormatError when a
// directory has no metrics.jsonl, or it cannot be read.
std::string report_page(const std::vector<std::filesystem::path>& directories,
                        ReportedState state = ReportedState::unknown);

// Writes the page atomically and returns its size in bytes. Throws FormatError.
int64_t write_report(const std::vector<std::filesystem::path>& directories, const std::filesystem::path& file,
                     ReportedState state = ReportedState::unknown);

}  // namespace trainer
