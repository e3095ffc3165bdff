// What the data of a run are like: counted before its first step, shown, and kept in data_report.json.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/length_counts.h"
#include "trainer/data/sample_view.h"

namespace trainer {

// A row that is named in the report.
struct NamedRow {
  int64_t file = 0;     // which of a set's
  uint64_t offset = 0;  // in it
  int64_t line = 0;
  std::string origin = {};  // "file:line"
  std::string note = {};    // what is wrong with it, or the place of the one that it equals
};

// The number of rows of a sort, and the first of them.
struct RowCount {
  int64_t count = 0;
  std::vector<NamedRow> first;

  static constexpr size_t kNamed = 5;
  void add(const NamedRow& row);
  void merge(const RowCount& other);
};

// The inputs, or the targets, of a set. Of a decoder's samples, prompt and completion; plain text and chat
// are all input.
struct SideReport {
  LengthCounts lengths;                          // of whole texts, before they are cut
  int64_t tokens = 0, longest = 0;               // after that
  int64_t truncated = 0, tokens_lost = 0;        // samples; tokens
  int64_t unknown_tokens = 0, with_unknown = 0;  // tokens; samples
  std::set<std::string> unknown_characters;
  RowCount empty;  // nothing, or nothing but white space
};

struct DataReport {
  std::string name;                     // the files
  DataKind kind = DataKind::automatic;  // what `automatic` turned out to be
  std::string input_field, target_field;
  int64_t rows = 0;     // those that are malformed included
  int64_t samples = 0;  // without those that are dropped
  RowCount malformed;
  int64_t dropped_rows = 0, split_rows = 0;  // by data.long_samples
  SideReport input, target;
  int64_t longest_sample = 0;  // input and target together, after they are cut
  RowCount truncated;          // samples of which something is lost, dropped ones included
  RowCount unknown;            // samples with <unk>
  int64_t supervised_tokens = 0;
  int64_t without_supervision = 0;  // samples with nothing to learn
  RowCount duplicates;              // rows that equal an earlier one; set by count_repeats()

  int64_t tokens() const { return input.tokens + target.tokens; }
  // Adds the counts of other rows.
  void merge(const DataReport& more);
  std::vector<NamedRow*> named_rows();
  // There are targets, or samples have none at all.
  bool has_target() const;
  // Those of malformed.first, a line each with what is wrong; one alone is its line.
  std::string malformed_text() const;
  // "source", "prompt", "text"; "target", "completion": what a kind calls them.
  const char* input_name() const;
  const char* target_name() const;
  // In brief, for the start of a run, without what repeats; warnings included, each beginning with "warning:
  // ".
  std::vector<std::string> lines() const;
};

const char* name_of(DataKind kind);
// Whether a row has an input and a target; of plain text all is input.
bool kind_has_target(DataKind kind);

// Rows of the evaluation data whose texts are in the training data.
struct Overlap {
  RowCount same_input;  // whatever the target
  RowCount same_both;   // input and target
};

// Padding in steps of the first epoch that were cut as training cuts them.
struct PaddingReport {
  int64_t steps = 0, micro_batches = 0, samples = 0;
  int64_t tokens = 0, padded_tokens = 0;  // without and with padding
  double share() const;                   // of padding, in what the model computes
};

struct RunDataReport {
  DataReport train;
  std::optional<DataReport> eval;
  std::optional<Overlap> overlap;
  int64_t effective_batch_size = 0, steps_per_epoch = 0;
  int64_t epoch_tokens = 0,
          epoch_supervised_tokens = 0;  // as weights of sets have it; on average of all epochs
  PaddingReport padding;
  std::vector<SampleView> samples;  // the first ones of the first epoch
  // Warnings of what repeats; of nothing else.
  std::vector<std::string> repeat_lines() const;
};

// One JSON object; its keys are in docs/data.md.
std::string to_json_text(const RunDataReport& report);

struct TextStyle {
  size_t width = 0;     // lines are broken there; 0: they are not
  bool colour = false;  // the supervised part in colour; else in [[ ]]
};
// Tables for people.
std::string to_text(const RunDataReport& report, const TextStyle& style);

// Throws DataError, with the numbers, the first places and what to do, when a share is above
// data.max_truncated, max_unknown or max_malformed.
void check_limits(const RunDataReport& report, const DataConfig& config);

}  // namespace trainer
