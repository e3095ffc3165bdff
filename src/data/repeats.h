// Which of many hashes were there before.
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

// Of rows with these hashes, in their order: those that equal an earlier one, and the first `named` of them.
// Takes about a byte a row beside the hashes.
Repeats find_repeats(const std::vector<uint64_t>& hashes, size_t named);

// A set of hashes, and for each the first row that has it.
class SeenHashes {
 public:
  explicit SeenHashes(std::vector<uint64_t> hashes);
  // Rows come in rising order; those with other hashes are nothing to it.
  void add(uint64_t hash, int64_t row);
  std::optional<int64_t> first_row(uint64_t hash) const;

 private:
  std::vector<uint64_t> hashes_;  // sorted, each once
  std::vector<int64_t> rows_;     // -1: none
};

}  // namespace trainer
