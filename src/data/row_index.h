// The index of a data file: the position and length of each sample. It is made once, by reading and
// tokenizing the whole file, stored in the cache, and mapped in later runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/files.h"

#include "data/piece_store.h"

namespace trainer {

struct IndexedSample {
  uint64_t offset;                       // of its row in the file
  uint64_t content;                      // hash of RowEncoder::content()
  uint64_t input;                        // hash of the input's text
  uint32_t length;                       // of the row, in bytes
  uint32_t piece;                        // which of the row's samples
  uint32_t input_tokens, target_tokens;  // as in EncodedSample
};

struct BadRow {
  uint64_t offset = 0, length = 0;
  int64_t line = 0;
  std::string problem;
};

// The counts and problems that were found while the index was built.
struct IndexSummary {
  int64_t rows = 0;  // all rows, bad ones included
  int64_t bad_rows = 0;
  std::vector<BadRow> problems;  // the first kProblems bad rows, in file order
  nlohmann::json counts;         // stored_counts()
  static constexpr int64_t kProblems = 100'000;
};

class RowIndex {
 public:
  // Returns the stored index if it is intact and was made with this fingerprint. `mapped`: false reads it
  // into memory, for indexes of more files than the system can map (vm.max_map_count).
  static std::optional<RowIndex> open(const std::filesystem::path& path, const std::string& fingerprint,
                                      bool mapped);

  // An empty index in memory. With a path (the one that save() will get), the ids of pieces go to a file next
  // to it.
  RowIndex() = default;
  explicit RowIndex(const std::filesystem::path& path);
  // `piece`: the ids of the sample when its row has several samples.
  void add(const IndexedSample& sample, std::span<const int32_t> piece);
  IndexSummary& summary() { return summary_; }
  // Call after the last add(). Frees the memory that was reserved for more.
  void shrink();

  int64_t size() const { return size_; }
  const IndexedSample& at(int64_t index) const;
  // Returns the ids of a sample whose row has several samples; nullopt when they are not stored.
  std::optional<std::vector<int32_t>> piece(int64_t index) const;
  const IndexSummary& summary() const { return summary_; }

  // Throws FormatError.
  void save(const std::filesystem::path& path, const std::string& fingerprint);

 private:
  static constexpr int64_t kBlock = 1 << 15;  // samples, 1 MB
  void read_into_memory();

  int64_t size_ = 0;
  IndexSummary summary_;
  std::vector<std::vector<IndexedSample>> blocks_;  // in memory,
  std::shared_ptr<const MappedFile> file_;          // or here
  PieceStore pieces_;
};

}  // namespace trainer
