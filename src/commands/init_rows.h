// What trainer init finds out about the rows: which columns are used and how, and how long the samples are.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

#include "commands/options.h"
#include "data/columns.h"

namespace trainer {

constexpr double kHeldOut = 0.05;  // the share of the rows that is held out, for evaluation

// What decides about the rows and is known of the model.
struct RowsModel {
  std::filesystem::path path;
  bool encoder_decoder = false, has_tokenizer = false;
  int64_t positions = 0;  // 0: no limit
};

// The keys of data.* that the configuration will have, each with the comment that stands above it.
struct RowsFound {
  DataConfig data;
  bool looked_at = false;  // else the model has no tokenizer
  int64_t rows = 0, usable = 0;
  bool holds_out = false;  // some rows, for evaluation
  std::string rows_note, template_note, bad_rows_note, length_note, target_length_note;
};

// Lists the columns, and settles which are used: with the options, by their names, or by asking. Throws
// ConfigError if nobody can be asked and the names leave it open; it says what to give.
FieldChoice settle_fields(const Columns& columns, const InitOptions& options, bool encoder_decoder);

// Reads all rows, and chooses the template, the lengths and what happens to rows that cannot be used. `base`:
// the configuration so far. Logs what was found and the first sample, with what is learned marked.
RowsFound look_at_rows(const Config& base, const FieldChoice& fields, const InitOptions& options,
                       const RowsModel& model);

}  // namespace trainer
