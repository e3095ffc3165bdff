// Checks the shares of rows that are truncated, unknown to the tokenizer, or malformed.
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/report.h"

#include "data/report_words.h"

namespace trainer {
namespace {

// "data.max_target_length (99 % of all targets have at most 70 tokens, the longest 90)"
std::string length_setting(const DataReport& report, bool of_targets) {
  if (report.kind == DataKind::completion) {
    return concat("data.max_length (the longest prompt has ", grouped(report.input.lengths.longest()),
                  " tokens, the longest completion ", grouped(report.target.lengths.longest()), ")");
  }
  const bool chat = report.kind == DataKind::chat;
  const LengthCounts& lengths = chat         ? report.conversations
                                : of_targets ? report.target.lengths
                                             : report.input.lengths;
  return concat(length_key(report.kind, of_targets), " (99 % of all ",
                chat         ? "conversation"
                : of_targets ? report.target_name()
                             : report.input_name(),
                "s have at most ", grouped(lengths.percentile(0.99)), " tokens, the longest ",
                grouped(lengths.longest()), ")");
}

std::string raise_lengths(const DataReport& report, const DataConfig& config) {
  std::vector<std::string> settings;
  if (report.kind != DataKind::seq2seq || report.input.lengths.longest() > config.max_source_length)
    settings.push_back(length_setting(report, false));
  if (report.kind == DataKind::seq2seq && report.target.lengths.longest() > config.max_target_length)
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
       {Limit{"data.max_malformed", config.max_malformed, report.malformed, report.rows, "are malformed",
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

}  // namespace trainer
