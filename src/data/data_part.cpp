#include "data/data_part.h"

#include <ranges>

#include "trainer/base/strings.h"

#include "data/report_fields.h"

namespace trainer {

DataReport report_of(const std::vector<Part>& parts) {
  DataReport report;
  for (size_t number = 0; number < parts.size(); number++) {
    const IndexSummary& summary = parts[number].index.summary();
    DataReport counts = counts_from(summary.counts);
    counts.rows = summary.rows;
    counts.malformed.count = summary.bad_rows;
    for (const BadRow& bad : summary.problems | std::views::take(RowCount::kNamed))
      counts.malformed.first.push_back({.offset = bad.offset, .line = bad.line, .note = bad.problem});
    for (NamedRow* row : counts.named_rows()) {
      row->file = static_cast<int64_t>(number);
      row->origin = concat(parts[number].file.shown().string(), ":", row->line);
    }
    report.merge(counts);
  }
  return report;
}

}  // namespace trainer
