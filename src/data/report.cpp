// The data report in brief: lines for the log.
#include "trainer/data/report.h"

#include <cstdio>

#include "trainer/base/strings.h"

#include "data/report_words.h"

namespace trainer {
namespace {

std::string lengths(const char* name, const SideReport& side) {
  char mean[32];
  std::snprintf(mean, sizeof mean, "%.1f", side.lengths.mean());
  const LengthCounts& counts = side.lengths;
  return concat(name, ": ", grouped(side.tokens), " tokens; lengths: mean ", mean, ", p50 ",
                grouped(counts.percentile(0.5)), ", p90 ", grouped(counts.percentile(0.9)), ", p99 ",
                grouped(counts.percentile(0.99)), ", longest ", grouped(counts.longest()));
}

class Warnings {
 public:
  Warnings(const DataReport& report, std::vector<std::string>& lines) : report_(report), lines_(lines) {}

  void all() {
    malformed();
    cut(report_.input, report_.input_name(), /*of_targets=*/false);
    cut(report_.target, report_.target_name(), /*of_targets=*/true);
    if (report_.dropped_rows > 0)
      warn(concat("left out rows that are too long: ", share_of(report_.dropped_rows, report_.rows)));
    unknown(report_.input, "inputs");
    unknown(report_.target, "targets");
    empty(report_.input, report_.input_name());
    empty(report_.target, report_.target_name());
    unsupervised();
  }

 private:
  void warn(const std::string& text) { lines_.push_back("warning: " + text); }
  std::string of_samples(int64_t count) const {
    return concat(share_of(count, report_.samples), count == 1 ? " sample" : " samples");
  }
  std::string of_rows(const RowCount& rows) const {
    return concat(share_of(rows.count, report_.rows), rows.count == 1 ? " row is" : " rows are");
  }

  void malformed() {
    const RowCount& rows = report_.malformed;
    if (rows.count > 0)
      warn(concat("skipped rows that cannot be used: ", share_of(rows.count, report_.rows), ": ",
                  places(rows)));
  }
  void cut(const SideReport& side, const char* name, bool of_targets) {
    if (side.truncated == 0) return;
    warn(concat(name, " truncated at ", length_key(report_.kind, of_targets), " in ",
                of_samples(side.truncated), ", ", counted(side.tokens_lost, "token"), " lost"));
  }
  void unknown(const SideReport& side, const char* where) {
    if (side.unknown_tokens == 0) return;
    warn(concat("the tokenizer does not know some of the text: ", grouped(side.unknown_tokens),
                " <unk> in the ", where, " of ", of_samples(side.with_unknown),
                side.unknown_characters.empty() ? "" : ": " + shown(side.unknown_characters)));
  }
  void empty(const SideReport& side, const char* name) {
    if (side.empty.count == 0) return;
    warn(concat("the ", name, " of ", of_rows(side.empty), " empty: ", places(side.empty)));
  }
  void unsupervised() {
    if (report_.without_supervision == 0) return;
    warn(concat("nothing to learn in ", of_samples(report_.without_supervision),
                report_.kind == DataKind::completion ? ": the prompt alone fills data.max_length"
                : report_.kind == DataKind::chat     ? ": no answer that counts within data.max_length"
                                                     : ""));
  }

  const DataReport& report_;
  std::vector<std::string>& lines_;
};

}  // namespace

std::vector<std::string> DataReport::lines() const {
  std::vector<std::string> lines;
  lines.push_back(concat(counted(samples, "sample"), ", ", name_of(kind), ": ", input_field,
                         target_field.empty() ? "" : " -> " + target_field));
  if (samples > 0) {
    lines.push_back(lengths(input_name(), input));
    if (has_target()) lines.push_back(lengths(target_name(), target));
  }
  if (split_rows > 0) lines.push_back(concat("rows in several samples: ", share_of(split_rows, rows)));
  Warnings(*this, lines).all();
  return lines;
}

std::vector<std::string> RunDataReport::repeat_lines() const {
  std::vector<std::string> lines;
  const auto repeated = [&](const char* what, const DataReport& report) {
    const RowCount& rows = report.duplicates;
    if (rows.count > 0)
      lines.push_back(concat(what, " data: warning: ", share_of(rows.count, report.rows),
                             " rows repeat others: ", places(rows, true)));
  };
  repeated("train", train);
  if (eval) repeated("eval", *eval);
  if (!overlap || overlap->same_input.count == 0) return lines;
  const RowCount &inputs = overlap->same_input, &both = overlap->same_both;
  lines.push_back(concat("eval data: warning: the input of ", share_of(inputs.count, eval->rows),
                         " rows is in the training data, of ", grouped(both.count),
                         " with its target: ", places(inputs, true)));
  return lines;
}

}  // namespace trainer
