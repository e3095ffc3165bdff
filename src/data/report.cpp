// The data report in brief: lines for the log.
#include "trainer/data/report.h"

#include <cstdio>

#include "trainer/base/strings.h"

#include "data/report_words.h"

namespace trainer {
namespace {

std::string lengths(const char* name, int64_t tokens, const LengthCounts& counts) {
  char mean[32];
  std::snprintf(mean, sizeof mean, "%.1f", counts.mean());
  return concat(name, ": ", grouped(tokens), " tokens; lengths: mean ", mean, ", p50 ",
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

  std::string in_rows(const RowCount& rows) const {
    return concat(share_of(rows.count, report_.rows), rows.count == 1 ? " row" : " rows");
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
    for (const Reason& reason : reasons(report_)) {
      const RowCount& rows = *reason.rows;
      if (rows.count > 0)
        warn(concat("nothing to learn in ", in_rows(rows), ": ", reason.words, ": ", places(rows)));
    }
    const RowCount& empty = report_.empty_answers;
    if (empty.count > 0)
      warn(concat("an answer is empty in ", in_rows(empty), ", so only its end is learned: ", places(empty)));
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
    const bool chat = kind == DataKind::chat;
    lines.push_back(chat ? lengths("conversations", tokens(), conversations)
                         : lengths(input_name(), input.tokens, input.lengths));
    if (has_target())
      lines.push_back(lengths(chat ? "answers in them" : target_name(), target.tokens, target.lengths));
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
  const std::string targets = !eval->has_target() ? ""
                              : both.count == 0
                                  ? ", with other targets"
                                  : concat(", ", grouped(both.count), " of them with its target");
  lines.push_back(concat("eval data: warning: the input of ", share_of(inputs.count, eval->rows),
                         " rows is in the training data", targets, ": ", places(inputs, true)));
  return lines;
}

}  // namespace trainer
