// Reads and tokenizes all rows of a file, in parallel.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/row_encoder.h"
#include "data/row_file.h"
#include "data/row_index.h"
#include "data/survey.h"

namespace trainer {

uint64_t hash_of(const std::string& text);

// The choice of the rows of a file that belong to a data set.
struct RowChoice {
  enum class Part { all, kept, held_out };
  Part part = Part::all;
  double held_out = 0;                 // the share of the rows that is held out
  std::optional<int64_t> max_samples;  // only the first N samples

  // Decides by the hash of the content alone: added rows do not change the choice of the others, and equal
  // rows are on the same side.
  bool takes(uint64_t content) const;
};

struct IndexOptions {
  RowChoice choice;
  int64_t num_workers = 1;
  std::filesystem::path path = {};                   // the file that it is saved in; empty: none
  std::optional<uint64_t> max_bytes = std::nullopt;  // stop after the row that exceeds this
};

// Returns the index of a file. `empty`: a survey without rows, which each thread copies. Logs the progress
// every ten seconds. Bad rows are counted and described in the
// summary. Throws DataError when the rows cannot be separated (an array that is not closed).
RowIndex build_index(const RowFile& file, const RowEncoder& encoder, const Survey& empty,
                     const IndexOptions& options);

}  // namespace trainer
