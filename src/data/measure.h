// Measurements of a whole data set: duplicate rows, a fingerprint of the samples, padding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/data/report.h"

namespace trainer {

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

// Finds duplicate rows, within one set and between the training and the evaluation data: sets
// report.train.duplicates. With evaluation data (nullptr: none), also sets report.eval->duplicates and
// report.overlap. Compares the 64-bit hashes in the index, so it reads no rows; it needs about 10 bytes per
// row while it runs. Rows that were dropped for their length do not count.
void count_repeats(const Dataset& train, const Dataset* eval, RunDataReport& report);

// Returns a fingerprint of the samples: their number and a checksum. The checksum covers the rows and lengths
// of all samples, and the tokens and labels of some that are spread over the data set: "400 samples, xxh3
// 0123456789abcdef".
std::string samples_text(const Dataset& data);

// Measures how much of the computation would be spent on padding, in the steps of the first epoch. When these
// have more than `most_samples` samples, it measures a selection that is spread evenly over the epoch. Splits
// and collates the samples as training does.
PaddingReport measure_padding(const Dataset& data, const SampleOrder& order, int64_t effective_batch_size,
                              const CutLimits& limits, int64_t most_samples = 8192);

}  // namespace trainer
