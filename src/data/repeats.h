// Finds duplicates among many hashes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

}  // namespace trainer
