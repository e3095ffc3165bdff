// Facts about all rows of a data set: duplicates, and a fingerprint of the samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/report.h"

namespace trainer {

// Finds duplicates among many hashes.

struct Repeat {
  int64_t row, same_as;
};

struct Repeats {
  int64_t count = 0;
  std::vector<Repeat> first;  // by row
};

// Counts the rows that equal an earlier row, and returns the first `named` of them. `hashes`: one per row, in
// row order. Needs about one byte per row besides the hashes.
Repeats find_repeats(const std::vector<uint64_t>& hashes, size_t named);

// A set of hashes, with the first row that has each.
class SeenHashes {
 public:
  explicit SeenHashes(std::vector<uint64_t> hashes);
  // Rows must come in ascending order; hashes that are not in the set are ignored.
  void add(uint64_t hash, int64_t row);
  std::optional<int64_t> first_row(uint64_t hash) const;

 private:
  std::vector<uint64_t> hashes_;  // sorted, each once
  std::vector<int64_t> rows_;     // -1: none
};

// Finds duplicate rows: within one set, or between the training and the evaluation data.

// Sets report.train.duplicates. With evaluation data (nullptr: none), also sets report.eval->duplicates and
// report.overlap. Compares the 64-bit hashes in the index, so it reads no rows; it needs about 10 bytes per
// row while it runs. Rows that were dropped for their length do not count.
void count_repeats(const Dataset& train, const Dataset* eval, RunDataReport& report);

// Returns a fingerprint of the samples: their number and a checksum. The checksum covers the rows and lengths
// of all samples, and the tokens and labels of some that are spread over the data set: "400 samples, xxh3
// 0123456789abcdef".
std::string samples_text(const Dataset& data);

}  // namespace trainer
