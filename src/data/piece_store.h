// Stores the ids of rows that are split (data.long_samples). Otherwise a long row would be tokenized again,
// as a whole, for each of its pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/files.h"

#include "data/pooled_file.h"

namespace trainer {

// Keeps the ids in memory, or after write_to() in a file, from which only the requested ids are read. When
// the file cannot be written, the store logs a warning and goes without it; callers that find nothing here
// tokenize the row.
class PieceStore {
 public:
  PieceStore() = default;
  ~PieceStore();
  PieceStore(PieceStore&&) = default;
  PieceStore& operator=(PieceStore&&) = default;

  // Adds the ids of a sample; sample numbers must be ascending.
  void add(int64_t sample, std::span<const int32_t> ids);
  // Returns the ids of a sample; nullopt when the store has none for this sample and size, or when they are
  // damaged or still being written.
  std::optional<std::vector<int32_t>> find(int64_t sample, size_t size) const;

  // Call before the first add(): everything goes to this file. finish() completes the file and renames it to
  // this path; without any ids there is no file.
  void write_to(const std::filesystem::path& path) { path_ = path; }
  void finish();
  // Opens what finish() wrote; an empty store when the file is missing or damaged. Ids are checked when they
  // are requested.
  static PieceStore open(const std::filesystem::path& path);

 private:
  struct Piece {
    int64_t sample;
    uint64_t first;  // index of its first id
    uint64_t hash;   // of them
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

}  // namespace trainer
