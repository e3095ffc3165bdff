// metrics.jsonl: one JSON object a line (docs/metrics.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "trainer/base/files.h"
#include "trainer/base/metrics.h"

namespace trainer {

class JsonlSink : public MetricSink {
 public:
  // Opens or makes the file, for appending. Throws FormatError when it cannot be opened.
  explicit JsonlSink(std::filesystem::path path);

  // Appends the row with `kind` first, doubles so that they read back exactly, NaN and infinities as null.
  // The row is in the file when this returns. When it cannot be written (disk full) the run goes on: the row
  // is left out as a whole and the first time a warning says so.
  void write(const MetricRow& row) override;

  // Removes all rows behind the first `bytes`, also one of which only a part is left. Where there are not so
  // many bytes, or rows cannot be removed, a warning says so.
  void keep_first(int64_t bytes);
  // The bytes of all rows so far, when they are on the disk.
  int64_t synced_bytes();

 private:
  std::filesystem::path path_;
  AppendedFile file_;
  int64_t rows_lost_ = 0;
};

}  // namespace trainer
