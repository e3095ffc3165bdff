// The data report as lines for people.
#include <cstdio>

#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"

namespace trainer {
namespace {

// "12 (1.3 %)"
std::string share(int64_t part, int64_t whole) {
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  char text[32];
  std::snprintf(text, sizeof text, percent > 0 && percent < 0.05 ? "<0.1 %%" : "%.1f %%", percent);
  return concat(grouped(part), " (", text, ")");
}

std::string lengths(const char* name, int64_t tokens, int64_t longest, int64_t samples) {
  char mean[32];
  std::snprintf(mean, sizeof mean, "%.1f", static_cast<double>(tokens) / static_cast<double>(samples));
  return concat(name, ": ", grouped(tokens), " tokens, mean ", mean, ", longest ", grouped(longest));
}

std::string sample_word(int64_t count) { return count == 1 ? " sample" : " samples"; }

void warn_truncated(std::vector<std::string>& lines, const DataReport& report) {
  const bool seq2seq = report.kind == DataKind::seq2seq;
  const auto warn = [&](int64_t count, const char* what, const char* key) {
    if (count == 0) return;
    lines.push_back(
        concat("warning: ", what, " cut at ", key, " in ", share(count, report.samples), sample_word(count)));
  };
  const char* input = seq2seq ? "source" : report.kind == DataKind::text ? "text" : "prompt";
  warn(report.truncated_inputs, input, seq2seq ? "data.max_source_length" : "data.max_length");
  warn(report.truncated_targets, seq2seq ? "target" : "completion",
       seq2seq ? "data.max_target_length" : "data.max_length");
}

void warn_unknown(std::vector<std::string>& lines, const DataReport& report) {
  const auto warn = [&](int64_t tokens, int64_t count, const char* where, const std::string& characters) {
    if (tokens == 0) return;
    lines.push_back(concat("warning: the tokenizer does not know some of the text: ", grouped(tokens),
                           " <unk> in the ", where, " of ", share(count, report.samples), sample_word(count),
                           characters.empty() ? "" : ": " + characters));
  };
  warn(report.unknown_tokens_in_inputs, report.samples_with_unknown_inputs, "inputs",
       report.unknown_characters_in_inputs);
  warn(report.unknown_tokens_in_targets, report.samples_with_unknown_targets, "targets",
       report.unknown_characters_in_targets);
}

}  // namespace

std::vector<std::string> DataReport::lines() const {
  std::vector<std::string> lines;
  const char* kind_name = kind == DataKind::seq2seq ? "seq2seq"
                          : kind == DataKind::text  ? "text"
                                                    : "completion";
  lines.push_back(concat(grouped(samples), sample_word(samples), ", ", kind_name, ": ", input_field,
                         target_field.empty() ? "" : " -> " + target_field));
  if (samples == 0) return lines;
  if (bad_rows > 0)
    lines.push_back(concat("warning: skipped rows that cannot be used: ", share(bad_rows, rows)));
  if (dropped_rows > 0)
    lines.push_back(concat("warning: left out rows that are too long: ", share(dropped_rows, rows)));
  if (split_rows > 0) lines.push_back(concat("rows in several samples: ", share(split_rows, rows)));
  const char* input_name = kind == DataKind::seq2seq ? "source" : kind == DataKind::text ? "text" : "prompt";
  lines.push_back(lengths(input_name, input_tokens, longest_input, samples));
  if (kind != DataKind::text) {
    lines.push_back(
        lengths(kind == DataKind::seq2seq ? "target" : "completion", target_tokens, longest_target, samples));
  }
  warn_truncated(lines, *this);
  warn_unknown(lines, *this);
  if (without_supervision > 0) {
    lines.push_back(concat("warning: nothing to learn in ", share(without_supervision, samples),
                           sample_word(without_supervision),
                           kind == DataKind::completion ? ": the prompt alone fills data.max_length" : ""));
  }
  return lines;
}

}  // namespace trainer
