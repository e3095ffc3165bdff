// A pass over the rows of files that counts their labels, in parallel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/build_index.h"
#include "data/label_encoder.h"

namespace trainer {

struct CountedLabels {
  std::map<std::string, int64_t> counts;  // in the rows of the choice; those of others have 0. Not of numbers
  int64_t labels = 0;                     // of the choice
  bool all_equal = true;                  // and whether they are the same
  std::string first;
};

// Rows that cannot be used are left out: build_index() tells of them. Throws DataError when the rows cannot
// be separated.
CountedLabels count_labels(const LabelEncoder& encoder, const std::vector<RowFile>& files,
                           const RowChoice& choice, int64_t num_workers);

}  // namespace trainer
