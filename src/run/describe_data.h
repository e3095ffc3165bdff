// The report on the data of a run, and the rows that data.bad_rows: skip leaves out.
#pragma once

#include <filesystem>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/data/report.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// Returns the report: what was counted when the data were opened, duplicates, the steps of an epoch and their
// padding, and the first samples in `order`, the order of `train`. `eval` may be nullptr.
RunDataReport describe_data(const Config& config, const Dataset& train, const Dataset* eval,
                            const SampleOrder& order, const Tokenizer& tokenizer);

// Writes DIRECTORY/data_report.json. A full disk must not stop a run, so a failure is only logged as a
// warning.
void keep_data_report(const RunDataReport& report, const std::filesystem::path& directory);

// Writes skipped_rows.jsonl into the output directory if rows were skipped: file, line, problem, and the
// beginning of the row. A file of an earlier start is replaced or removed. If it cannot be written, a warning
// is logged.
void keep_skipped_rows(const Dataset& train, const Dataset* eval, const std::filesystem::path& output_dir);

}  // namespace trainer
