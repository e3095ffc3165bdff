// The ids of rows that are split (data.long_samples): to tokenise a book anew for each of its pieces would
// cost its length times their number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/files.h"

namespace trainer {

// Keeps them in memory; after write_to() in a file, of which only what is asked for is read. A file that
// cannot be written is given up with a warning: who finds nothing here tokenises the row.
class PieceStore {
 public:
  PieceStore() = default;
  ~PieceStore();
  PieceStore(PieceStore&&) = default;
  PieceStore& operator=(PieceStore&&) = default;

  // The ids of the samples with these numbers, which rise.
  void add(int64_t sample, std::span<const int32_t> ids);
  // nullopt: it has no ids of that sample and number, or they are damaged, or still being written.
  std::optional<std::vector<int32_t>> find(int64_t sample, size_t size) const;

  // Before anything is added: all goes to this file, if there is anything; finish() makes it whole and puts
  // it in its place.
  void write_to(const std::filesystem::path& path) { path_ = path; }
  void finish();
  // What finish() left; empty where that is nothing, or damaged. Ids are checked when they are asked for.
  static PieceStore open(const std::filesystem::path& path);

 private:
  struct Piece {
    int64_t sample;
    uint64_t first;  // of its ids, in all
    uint64_t hash;   // of them
  };
  void write(std::span<const int32_t> ids);
  void give_up(const std::exception& reason);
  std::filesystem::path unfinished() const;

  std::vector<Piece> pieces_;
  uint64_t ids_ = 0;  // in all
  std::vector<int32_t> memory_;
  std::filesystem::path path_;             // empty: in memory
  std::unique_ptr<AppendedFile> writing_;  // to unfinished()
  std::shared_ptr<const MappedFile> file_;
  bool given_up_ = false;
};

}  // namespace trainer
