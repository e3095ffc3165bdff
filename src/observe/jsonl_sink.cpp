#include "observe/jsonl_sink.h"

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {

namespace {

// Returns the size of the complete lines within the first `bytes` of a file.
int64_t bytes_of_lines(const std::filesystem::path& path, int64_t bytes) {
  const auto file = MappedFile::open(path);
  const size_t end = file->text().substr(0, static_cast<size_t>(bytes)).rfind('\n');
  return end == std::string_view::npos ? 0 : static_cast<int64_t>(end) + 1;
}

}  // namespace

JsonlSink::JsonlSink(std::filesystem::path path) : path_(std::move(path)), file_(path_) {}

void JsonlSink::write(const MetricRow& row) {
  nlohmann::ordered_json line = {{"kind", row.kind}};
  line.update(row.values);
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;  // a path need not be UTF-8
  try {
    file_.append(line.dump(-1, ' ', false, replace) + "\n");
  } catch (const FormatError& e) {
    if (rows_lost_++ == 0) {
      log::warning(concat("a row of metrics is lost: ", e.what(),
                          "; training continues, rows will be missing from the file"));
    }
  }
}

void JsonlSink::keep_first(int64_t bytes) {
  const int64_t there = file_.size();
  if (there < bytes)
    log::warning(concat("metrics.jsonl has ", grouped(there), " bytes, but it had ", grouped(bytes),
                        ": rows of earlier steps are missing"));
  try {
    const int64_t kept = bytes_of_lines(path_, bytes);
    if (there > kept) file_.truncate(kept);
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), ": steps that are repeated have two rows"));
  }
}

int64_t JsonlSink::synced_bytes() {
  try {
    file_.sync();
  } catch (const FormatError& e) {
    log::warning(e.what());
  }
  return file_.size();
}

}  // namespace trainer
