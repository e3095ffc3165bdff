// The data report in brief, for the log, and the limits of what it counts.
#include "trainer/data/report.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/length_counts.h"

#include "data/report_words.h"

namespace trainer {
namespace {

std::string lengths(const char* name, int64_t tokens, const char* unit, const LengthCounts& counts) {
  char mean[32];
  std::snprintf(mean, sizeof mean, "%.1f", counts.mean());
  return concat(name, ": ", grouped(tokens), " ", unit, "; lengths: mean ", mean, ", p50 ",
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
    unspelled();
    unused_marks();
    doubled_ends();
    empty(report_.input, report_.input_name());
    empty(report_.target, report_.target_name());
    unsupervised();
    answers();
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
      warn(concat("skipped ", in_rows(rows), ": ", places(rows),
                  rows.first.empty() ? "" : concat("; the first: ", rows.first.front().note)));
  }
  void cut(const SideReport& side, const char* name, bool of_targets) {
    if (side.truncated == 0) return;
    warn(concat(name, " truncated at ", length_key(report_.layout, of_targets), " in ",
                of_samples(side.truncated), ", ", counted(side.tokens_lost, "token"), " lost"));
  }
  void unknown(const SideReport& side, const char* where) {
    if (side.unknown_tokens == 0) return;
    warn(concat("the tokenizer does not know some of the text: ", grouped(side.unknown_tokens),
                " <unk> in the ", where, " of ", of_samples(side.with_unknown),
                side.unknown_characters.empty() ? "" : ": " + shown(side.unknown_characters)));
  }
  void unspelled() {
    const RowCount& rows = report_.unspelled;
    if (rows.count == 0) return;
    warn(concat(
        "the tokenizer does not keep ", blanks_named(report_.unspelled_characters), " of what is learned in ",
        in_rows(rows), ": ", places(rows), "; the model cannot write them. Add them as tokens (",
        "model.add_tokens=", as_tokens(report_.unspelled_characters), "), or replace them in the data"));
  }
  void unused_marks() {
    const RowCount& rows = report_.unused_marks;
    for (const std::string& field : report_.unused_mark_fields) {
      const bool is_list = field.ends_with("[]");
      const std::string name = is_list ? field.substr(0, field.size() - 2) : field;
      warn(concat("the rows have a ", is_list ? "list" : "field", " \"", name,
                  "\", which is not used: ", in_rows(rows), ", ", places(rows),
                  is_list
                      ? "; if it says which messages are learned, write \"train\": true or false into the "
                        "messages"
                      : concat("; if it is the weight of a row in the loss: data.loss_weight=", name)));
    }
  }
  void doubled_ends() {
    const RowCount& rows = report_.doubled_ends;
    if (rows.count == 0) return;
    warn(concat("the text of ", in_rows(rows),
                " already has the token that the tokenizer adds at its beginning or "
                "end (BOS, EOS), which then stands there twice: ",
                places(rows), "; remove it from the data"));
  }
  void empty(const SideReport& side, const char* name) {
    if (side.empty.count == 0) return;
    warn(concat("the ", name, " of ", of_rows(side.empty), " empty: ", places(side.empty)));
  }
  void unsupervised() {
    for (const Reason& reason : reasons(report_)) {
      const RowCount& rows = *reason.rows;
      if (rows.count > 0)
        warn(concat("no trainable tokens in ", in_rows(rows), ": ", reason.words, ": ", places(rows)));
    }
    const RowCount& empty = report_.empty_answers;
    if (empty.count > 0)
      warn(concat("an answer is empty in ", in_rows(empty), ", so only its end is learned: ", places(empty)));
  }

  void answers() {
    const RowCount& equal = report_.equal_sides;
    if (equal.count > 0)
      warn(concat("the chosen answer is the rejected one in ", in_rows(equal), ": ", places(equal)));
    if (report_.kind != DataKind::feedback || report_.samples == 0) return;
    if (report_.undesirable == 0 || report_.undesirable == report_.samples)
      warn(concat("all answers are judged ", report_.undesirable == 0 ? "good" : "bad"));
  }

  const DataReport& report_;
  std::vector<std::string>& lines_;
};

}  // namespace

std::vector<std::string> DataReport::lines() const {
  std::vector<std::string> lines;
  lines.push_back(concat(counted(samples, "sample"), ", ", name_of(kind), ": ", fields_text(*this)));
  if (samples > 0) {
    const bool chat = layout == DataKind::chat;
    lines.push_back(chat ? lengths("conversations", tokens(), unit(), conversations)
                         : lengths(input_name(), input.tokens, unit(), input.lengths));
    if (has_target())
      lines.push_back(
          lengths(chat ? "answers in them" : target_name(), target.tokens, unit(), target.lengths));
  }
  if (!labels.empty()) lines.push_back("labels: " + labels_text(*this));
  if (split_rows > 0) lines.push_back(concat("rows in several samples: ", share_of(split_rows, rows)));
  if (!template_date.empty()) lines.push_back("the date in them: " + date_text(*this));
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

namespace {

// "data.max_target_length (99 % of all targets have at most 70 tokens, the longest 90)"
std::string length_setting(const DataReport& report, bool of_targets) {
  if (report.layout == DataKind::completion) {
    return concat("data.max_length (the longest prompt has ", grouped(report.input.lengths.longest()),
                  " tokens, the longest completion ", grouped(report.target.lengths.longest()), ")");
  }
  const bool chat = report.layout == DataKind::chat;
  const LengthCounts& lengths = chat         ? report.conversations
                                : of_targets ? report.target.lengths
                                             : report.input.lengths;
  return concat(length_key(report.layout, of_targets), " (99 % of all ",
                chat         ? "conversation"
                : of_targets ? report.target_name()
                             : report.input_name(),
                "s have at most ", grouped(lengths.percentile(0.99)), " tokens, the longest ",
                grouped(lengths.longest()), ")");
}

std::string raise_lengths(const DataReport& report, const DataConfig& config) {
  std::vector<std::string> settings;
  if (report.layout != DataKind::seq2seq || report.input.lengths.longest() > config.max_source_length)
    settings.push_back(length_setting(report, false));
  if (report.layout == DataKind::seq2seq && report.target.lengths.longest() > config.max_target_length)
    settings.push_back(length_setting(report, true));
  return join(settings, " and ");
}

struct Limit {
  const char* key;
  std::optional<double> most;
  const RowCount& rows;
  int64_t of;
  std::string what, advice;
};

std::string excess(const Limit& limit, const std::string& name) {
  const double share =
      limit.of > 0 ? static_cast<double>(limit.rows.count) / static_cast<double>(limit.of) : 0;
  if (!limit.most || share <= *limit.most) return "";
  std::string text =
      concat(name, ": ", grouped(limit.rows.count), " of ", counted(limit.of, "row"), " (", percent(share),
             ") ", limit.what, ", and ", limit.key, " is ", *limit.most, ": ", places(limit.rows), ". ");
  if (!limit.rows.first.empty() && !limit.rows.first.front().note.empty())
    text += concat("The first: ", limit.rows.first.front().note, ". ");
  return text + limit.advice;
}

// Collects the shares that are above their limits.
void collect(const DataReport& report, const DataConfig& config, std::vector<std::string>& excesses) {
  const int64_t usable = report.rows - report.malformed.count;
  std::set<std::string> characters = report.input.unknown_characters;
  characters.insert(report.target.unknown_characters.begin(), report.target.unknown_characters.end());
  for (const Limit& limit :
       {Limit{"data.max_malformed", config.max_malformed, report.malformed, report.rows, "are skipped",
              "Fix them, or raise data.max_malformed"},
        Limit{"data.max_truncated", config.max_truncated, report.truncated, usable,
              report.dropped_rows > 0
                  ? std::string("are left out because they are too long")
                  : concat("lose ", counted(report.input.tokens_lost + report.target.tokens_lost, "token"),
                           " because they are too long"),
              concat("Raise ", raise_lengths(report, config), ", shorten them, or raise data.max_truncated")},
        Limit{"data.max_unknown", config.max_unknown, report.unknown, usable,
              "have text that the tokenizer does not know",
              concat("The characters: ", shown(characters),
                     ". Add them with model.add_tokens, replace them in the data, or raise "
                     "data.max_unknown")}}) {
    const std::string text = excess(limit, report.name);
    if (!text.empty()) excesses.push_back(text);
  }
}

}  // namespace

void check_limits(const RunDataReport& report, const DataConfig& config) {
  std::vector<std::string> excesses;
  collect(report.train, config, excesses);
  if (report.eval) collect(*report.eval, config, excesses);
  if (!excesses.empty()) throw of_family(ErrorCode::data_limits, DataError(join(excesses, "\n")));
}

namespace {

constexpr int64_t kShort = 1 << 14;

int64_t bucket_of(int64_t length) { return std::bit_width(static_cast<uint64_t>(length)); }

}  // namespace

void LengthCounts::add(int64_t length, int64_t times) {
  count_ += times;
  total_ += length * times;
  if (length >= kShort) {
    long_[length] += times;
    return;
  }
  const auto place = static_cast<size_t>(length);
  if (place >= short_.size()) short_.resize(place + 1);
  short_[place] += times;
}

void LengthCounts::merge(const LengthCounts& other) {
  for (const auto& [length, times] : other.counts()) add(length, times);
}

std::map<int64_t, int64_t> LengthCounts::counts() const {
  std::map<int64_t, int64_t> all = long_;
  for (size_t length = 0; length < short_.size(); length++) {
    if (short_[length] > 0) all[static_cast<int64_t>(length)] = short_[length];
  }
  return all;
}

double LengthCounts::mean() const {
  return count_ > 0 ? static_cast<double>(total_) / static_cast<double>(count_) : 0;
}

int64_t LengthCounts::longest() const { return percentile(1); }

int64_t LengthCounts::percentile(double share) const {
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(count_)));
  int64_t seen = 0;
  for (const auto& [length, times] : counts()) {
    seen += times;
    if (seen >= rank) return length;
  }
  return 0;
}

std::vector<LengthCounts::Bucket> LengthCounts::histogram() const {
  std::vector<Bucket> buckets;
  for (const auto& [length, times] : counts()) {
    const int64_t bucket = bucket_of(length);
    const int64_t first = buckets.empty() ? bucket : bucket_of(buckets.back().from) + 1;
    for (int64_t next = first; next <= bucket; next++)
      buckets.push_back({next == 0 ? 0 : int64_t{1} << (next - 1), (int64_t{1} << next) - 1, 0});
    buckets.back().count += times;
  }
  return buckets;
}

}  // namespace trainer
