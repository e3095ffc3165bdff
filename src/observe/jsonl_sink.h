// metrics.jsonl: one JSON object a line (docs/metrics.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/base/files.h"
#include "trainer/base/metrics.h"

namespace trainer {

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

}  // namespace trainer
