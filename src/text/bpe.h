// Byte-pair encoding over bytes: a word starts as its bytes; the pair with the lowest rank, leftmost first,
// is merged until none is left (Sennrich, Haddow, Birch 2016).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/word_cache.h"

namespace trainer {

struct BpeModel {
  std::vector<std::optional<std::string>> tokens;  // id -> its bytes; none: no such id
  struct Merge {
    int32_t left, right, merged;
  };
  std::vector<Merge> merges;   // by rank
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  std::optional<int32_t> unk;  // for bytes that are no token; none: they are left out
  bool fuse_unk = false;       // neighbouring unknown bytes give one unk
};

// Safe to use from several threads at once.
class Bpe {
 public:
  explicit Bpe(const BpeModel& model);
  // Appends the ids of one word.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merged {
    int32_t rank, id;
  };
  // Open addressing over pairs of ids; a lookup is one cache miss.
  class MergeTable {
   public:
    explicit MergeTable(const std::vector<BpeModel::Merge>& merges);
    const Merged* find(int32_t left, int32_t right) const;

   private:
    struct Slot {
      uint64_t pair;
      Merged merged;
    };
    size_t slot_of(uint64_t pair) const;
    std::vector<Slot> slots_;
  };

  std::vector<int32_t> start_symbols(std::string_view word) const;
  void merge(std::vector<int32_t>& symbols) const;

  MergeTable merges_;
  int32_t id_of_byte_[256];
  std::optional<int32_t> unk_;
  bool fuse_unk_;
  std::unordered_map<std::string, int32_t> whole_words_;  // filled with ignore_merges only
  mutable WordCache cache_;
};

}  // namespace trainer
