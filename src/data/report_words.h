// Formats numbers and names for the data report, and logs its lines.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trainer/data/report.h"

namespace trainer {

// "1.3 %"; "<0.1 %" for what is above 0.
std::string percent(double share);
std::string percent(int64_t part, int64_t whole);

// "12 (1.3 %)"
std::string share_of(int64_t part, int64_t whole);

// "1 row", "2 rows"
std::string counted(int64_t count, const char* what);

// "a.jsonl:3, :7 and 12 more"; with `twins` "a.jsonl:3 = :1, b.jsonl:4 = a.jsonl:2". A file is named only
// when it differs from the one before.
std::string places(const RowCount& rows, bool twins = false);

// "question -> answer", on one line.
std::string fields_text(const DataReport& report);

// "{ } ~ …", the first ones
std::string shown(const std::set<std::string>& characters);

// What a tokenizer does not keep, and the list for model.add_tokens that mends it: "line ends, tabs, ²" and
// ["\n", "\t", "²"], the first ones.
std::string blanks_named(const std::set<std::string>& characters);
std::string as_tokens(const std::set<std::string>& characters);

// Returns the key of the setting that truncates inputs, or targets.
const char* length_key(DataKind kind, bool of_targets);
// Returns the rows of each class: "ham 310, spam 90".
std::string labels_text(const DataReport& report);

// "2026-05-31, which the chat template writes (data.template_date)"; for a report with a template_date.
std::string date_text(const DataReport& report);

// Why rows teach nothing, and which.
struct Reason {
  std::string words;
  const RowCount* rows;
};
std::vector<Reason> reasons(const DataReport& report);

// Why no sample of these data teaches anything.
std::string why_nothing_to_learn(const DataReport& report, int64_t max_length);

// "a.jsonl:3, :7: its reason", a line for each reason.
std::vector<std::string> with_reasons(const RowCount& rows);

// Returns the sample as the report shows it, line by line: what is learned is in colour, or in [[ ]].
std::vector<std::string> sample_lines(const SampleView& sample, const DataReport& report,
                                      const TextStyle& style);

// Logs the lines, each after `start`; those that warn ("warning: ..." in the line) as warnings.
void log_report(const std::string& start, const std::vector<std::string>& lines);

}  // namespace trainer
