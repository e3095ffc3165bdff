// The files that a run writes about itself as it goes: metrics.jsonl and status.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trainer/base/files.h"
#include "trainer/base/metrics.h"

#include "formats/run_status.h"
#include "observe/time_left.h"

namespace trainer {

// metrics.jsonl: one JSON object a line (docs/metrics.md).

class JsonlSink : public MetricSink {
 public:
  // Opens or creates the file for appending. Throws FormatError when it cannot be opened.
  explicit JsonlSink(std::filesystem::path path);

  // Appends the row, `kind` first. Doubles are written so that they read back exactly, NaN and infinities as
  // null. The row is in the file when this returns. If it cannot be written (disk full), the whole row is
  // left out and the run continues; the first time a warning is logged.
  void write(const MetricRow& row) override;

  // Keeps the complete rows within the first `bytes` and removes everything after them. Logs a warning when
  // the file is shorter, or rows cannot be removed.
  void keep_first(int64_t bytes);
  // Returns the size of all rows so far, after syncing them to the disk.
  int64_t synced_bytes();

 private:
  std::filesystem::path path_;
  AppendedFile file_;
  int64_t rows_lost_ = 0;
};

// OUT/status.json: what the run is doing, for `trainer status` and for people.

// Writes the file at once, then every kStatusInterval from a thread of its own, and at the end. A file that
// cannot be written (disk full) stays as it was; the run goes on.
class StatusFile : public MetricSink {
 public:
  StatusFile(const std::filesystem::path& directory, const std::string& model);
  ~StatusFile() override;
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  // step: where the run begins.
  void start(const RunOutlook& outlook, int64_t step);
  void write(const MetricRow& row) override;
  // The last one of the run. message: why it stopped or failed.
  void end(RunPhase state, int64_t exit_code, const std::string& message);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
