// Statistics about the data of a run. They are computed before the first step, logged, and stored in
// data_report.json.
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
  int64_t file = 0;     // index of the file in its set
  uint64_t offset = 0;  // bytes from the beginning of the file
  int64_t line = 0;
  std::string origin = {};  // "file:line"
  std::string note = {};    // its fault, or the place of the row that it duplicates
};

// The number of rows of one kind (malformed, truncated, ...), and the first of them.
struct RowCount {
  int64_t count = 0;
  std::vector<NamedRow> first;

  static constexpr size_t kNamed = 5;
  void add(const NamedRow& row);
  void merge(const RowCount& other);
};

// Statistics of the inputs, or of the targets, of a set. For decoders these are prompt and completion; plain
// text and chat are all input.
struct SideReport {
  LengthCounts lengths;                          // lengths of whole texts, before truncation
  int64_t tokens = 0, longest = 0;               // after truncation
  int64_t truncated = 0, tokens_lost = 0;        // samples; tokens
  int64_t unknown_tokens = 0, with_unknown = 0;  // tokens; samples
  std::set<std::string> unknown_characters;
  RowCount empty;  // empty, or only white space
};

// Rows with a sample that teaches nothing, by the reason.
struct NothingToLearn {
  RowCount no_answer;    // a conversation in which the assistant says nothing
  RowCount not_counted;  // a conversation whose answers do not count (data.loss_on, weight)
  RowCount cut_away;     // truncation leaves nothing of what is learned
  RowCount too_short;    // nothing to predict: one token, or none
};

struct DataReport {
  std::string name;                       // the files
  DataKind kind = DataKind::automatic;    // never `automatic`
  DataKind layout = DataKind::automatic;  // of the samples: `kind`, but of preferences that of each answer
  bool in_bytes = false;                  // a token is a byte (ByT5)
  std::string input_field, target_field;
  std::string
      template_date;    // the day that the chat template writes (data.template_date); "": it writes none
  int64_t rows = 0;     // including malformed rows
  int64_t samples = 0;  // without dropped samples
  RowCount malformed;
  int64_t dropped_rows = 0, split_rows = 0;  // by data.long_samples
  SideReport input, target;
  int64_t longest_sample = 0;                  // input and target together, after truncation
  RowCount truncated;                          // samples that lose tokens, dropped samples included
  RowCount unknown;                            // samples with <unk>
  RowCount unspelled;                          // rows with a target that the tokenizer does not give back
  std::set<std::string> unspelled_characters;  // what is lost or changed; "  ": repeated blanks
  RowCount unused_marks;                     // rows with fields that may say what is learned, and do not here
  std::set<std::string> unused_mark_fields;  // these: "train"; "train[]" for one mark a message
  RowCount doubled_ends;  // samples whose text has the tokens that the tokenizer adds at its ends
  int64_t supervised_tokens = 0;
  int64_t without_supervision = 0;  // samples without a supervised token
  NothingToLearn nothing;           // the rows without one, by the reason
  RowCount empty_answers;           // conversations with an answer without text: only its end is learned
  LengthCounts conversations;       // lengths of whole conversations, before truncation
  RowCount equal_sides;             // preferences whose two answers are the same
  int64_t undesirable = 0;          // feedback: samples that are judged bad
  std::vector<std::pair<std::string, int64_t>> labels;  // of kind classification: the rows of each class
  RowCount duplicates;  // rows equal to an earlier row; set by count_repeats()

  int64_t tokens() const { return input.tokens + target.tokens; }
  const char* unit() const { return in_bytes ? "bytes" : "tokens"; }
  // Adds the counts of other rows.
  void merge(const DataReport& more);
  std::vector<NamedRow*> named_rows();
  // Returns true when the kind has targets, or when targets were counted.
  bool has_target() const;
  // Lists malformed.first with the problem of each: one line per row. A single row gives just its line.
  std::string malformed_text() const;
  // Returns what this kind of data calls its input ("source", "prompt", "text", "context") and its target
  // ("target", "completion", "answers").
  const char* input_name() const;
  const char* target_name() const;
  // A summary for the start of a run, without duplicates. Warnings are included; each begins with "warning:
  // ".
  std::vector<std::string> lines() const;
};

const char* name_of(DataKind kind);
// Returns whether a row has an input and a target; plain text is all input.
bool kind_has_target(DataKind kind);

// Rows of the evaluation data whose texts also occur in the training data.
struct Overlap {
  RowCount same_input;  // whatever the target
  RowCount same_both;   // input and target
};

// Padding in steps of the first epoch, split into micro-batches as training splits them.
struct PaddingReport {
  int64_t steps = 0, micro_batches = 0, samples = 0;
  int64_t tokens = 0, padded_tokens = 0;  // without and with padding
  double share() const;                   // the share of padding in all tokens that the model computes
};

struct RunDataReport {
  DataReport train;
  std::optional<DataReport> eval;
  std::optional<Overlap> overlap;
  int64_t effective_batch_size = 0, steps_per_epoch = 0;
  int64_t epoch_tokens = 0,
          epoch_supervised_tokens = 0;  // with the weights of the sets; averaged over all epochs
  PaddingReport padding;
  std::vector<SampleView> samples;  // the first ones of the first epoch
  // Returns only the warnings about duplicates.
  std::vector<std::string> repeat_lines() const;
};

// Returns one JSON object; docs/data-report.md explains its keys.
std::string to_json_text(const RunDataReport& report);

struct TextStyle {
  size_t width = 0;     // line width in columns; 0: lines are not wrapped
  bool colour = false;  // the supervised part in colour; else in [[ ]]
};
// Returns the report as human-readable tables.
std::string to_text(const RunDataReport& report, const TextStyle& style);

// Throws DataError when a share is above data.max_truncated, max_unknown or max_malformed. The message has
// the numbers, the first rows and advice.
void check_limits(const RunDataReport& report, const DataConfig& config);

}  // namespace trainer
