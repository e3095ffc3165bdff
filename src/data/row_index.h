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

#include "base/checksum.h"
#include "data/pooled_file.h"

namespace trainer {

// The ids of rows that are split (data.long_samples). Otherwise a long row would be tokenized again, as a
// whole, for each of its pieces. Keeps the ids in memory, or after write_to() in a file, from which only the
// requested ids are read. When the file cannot be written, the store logs a warning and goes without it;
// callers that find nothing here tokenize the row.
class PieceStore {
 public:
  PieceStore() = default;
  ~PieceStore();
  PieceStore(PieceStore&&) = default;
  PieceStore& operator=(PieceStore&&) = default;

  // Adds the ids of a sample; sample numbers must be ascending.
  void add(int64_t sample, std::span<const int32_t> ids);
  // Returns the ids of a sample; nullopt when the store has none for this sample, or when they are damaged or
  // still being written.
  std::optional<std::vector<int32_t>> find(int64_t sample) const;

  // Call before the first add(): everything goes to this file. finish() completes the file and renames it to
  // this path; without any ids there is no file.
  void write_to(const std::filesystem::path& path) { path_ = path; }
  void finish();
  // Adds which samples have ids here, and the checksums of the ids.
  void add_to(RunningChecksum& sum) const;
  bool empty() const { return pieces_.empty(); }
  // Opens what finish() wrote; an empty store when the file is missing or damaged. Ids are checked when they
  // are requested.
  static PieceStore open(const std::filesystem::path& path);

 private:
  struct Piece {
    int64_t sample;
    uint64_t first;  // index of its first id
    uint64_t hash;   // hash of the ids
  };
  void write(std::span<const int32_t> ids);
  // Reads ids from the file; false when it is gone or shorter.
  bool read(uint64_t first, std::span<int32_t> ids) const;
  void give_up(const std::exception& reason);
  std::filesystem::path unfinished() const;

  std::vector<Piece> pieces_;
  uint64_t ids_ = 0;  // in all
  std::vector<int32_t> memory_;
  std::filesystem::path path_;             // empty: in memory
  std::unique_ptr<AppendedFile> writing_;  // to unfinished()
  PooledFile file_;
  bool given_up_ = false;
};

struct IndexedSample {
  uint64_t offset;                       // of its row in the file
  uint64_t content;                      // hash of RowEncoder::content()
  uint64_t input;                        // hash of the input's text
  uint32_t length;                       // of the row, in bytes
  uint32_t piece;                        // index among the row's samples
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
  // Adds the samples, and the ids of pieces that are kept. Returns whether some are.
  bool add_to(RunningChecksum& samples, RunningChecksum& pieces) const;

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
