// Where the samples of a data file are, and how long: made once by reading and tokenising all of it, kept in
// the cache, and mapped when it is there already.
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

// What was seen on the way.
struct IndexSummary {
  int64_t rows = 0;  // all that were looked at, bad ones too
  int64_t bad_rows = 0;
  std::vector<BadRow> problems;  // of bad rows in the order of the file, the first kProblems
  nlohmann::json counts;         // stored_counts()
  static constexpr int64_t kProblems = 100'000;
};

class RowIndex {
 public:
  // The one that is kept there, if it is whole and was made with this fingerprint.
  static std::optional<RowIndex> open(const std::filesystem::path& path, const std::string& fingerprint);

  // In memory, to be filled; the ids of pieces go to a file that belongs to the one of save(), if it is named
  // here.
  RowIndex() = default;
  explicit RowIndex(const std::filesystem::path& path);
  // `piece`: the ids of a sample whose row has several.
  void add(const IndexedSample& sample, std::span<const int32_t> piece);
  IndexSummary& summary() { return summary_; }

  int64_t size() const { return size_; }
  const IndexedSample& at(int64_t index) const;
  // Of a sample whose row has several; nullopt where they are not kept.
  std::optional<std::vector<int32_t>> piece(int64_t index) const;
  const IndexSummary& summary() const { return summary_; }

  // Throws FormatError.
  void save(const std::filesystem::path& path, const std::string& fingerprint);

 private:
  static constexpr int64_t kBlock = 1 << 15;  // samples, 1 MB

  int64_t size_ = 0;
  IndexSummary summary_;
  std::vector<std::vector<IndexedSample>> blocks_;  // in memory,
  std::shared_ptr<const MappedFile> file_;          // or here
  PieceStore pieces_;
};

}  // namespace trainer
