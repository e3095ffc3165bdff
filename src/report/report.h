// The page that shows runs (docs/observing.md): one HTML file with everything in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer {

// The state of a run that has not finished. `unknown`: it is guessed from the age of metrics.jsonl.
enum class ReportedState { unknown, running, stopped };

// Returns the page for the runs in these directories, from the files in them. Several runs are compared.
// Files other than metrics.jsonl may be missing or damaged; the page then says so. Throws FormatError when a
// directory has no metrics.jsonl, or it cannot be read.
std::string report_page(const std::vector<std::filesystem::path>& directories,
                        ReportedState state = ReportedState::unknown);

// Writes the page atomically and returns its size in bytes. Throws FormatError.
int64_t write_report(const std::vector<std::filesystem::path>& directories, const std::filesystem::path& file,
                     ReportedState state = ReportedState::unknown);

// The parts of the page (read_run.cpp): what it shows of a run, read from the files in its directory.

// Throws FormatError when metrics.jsonl is missing or cannot be read. What else is missing is left out.
nlohmann::ordered_json read_run(const std::filesystem::path& directory, ReportedState state);

// Reads a run again and again, each time only what is new in its files, for pages that stay open.
class RunReader {
 public:
  explicit RunReader(std::filesystem::path directory);
  ~RunReader();
  RunReader(const RunReader&) = delete;
  RunReader& operator=(const RunReader&) = delete;

  // Returns, and throws, what read_run() does. may_lack_metrics: a run that has only begun has no file of
  // metrics, and that is no error.
  nlohmann::ordered_json read(ReportedState state, bool may_lack_metrics = false);

 private:
  struct Part;
  struct Parts;
  std::filesystem::path directory_;
  std::unique_ptr<Parts> parts_;
};

// Returns a text that changes when the file or folder changes.
std::string stamp_of(const std::filesystem::path& path);

// The answers to the same inputs in different evaluations, from OUT/predictions: {"steps": [...], "samples":
// [{"origin", "input", "target", "answers": [...]}]}. Only some of the steps and samples, shortened.
// Null if there are none. An answer is null where the evaluation did not have the sample.
nlohmann::ordered_json read_predictions(const std::filesystem::path& directory);

// Returns at most `bytes` bytes of UTF-8 text, with "…" if it was longer.
std::string shortened(const std::string& text, size_t bytes);

}  // namespace trainer
