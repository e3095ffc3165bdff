// Byte-pair encoding (Sennrich, Haddow, Birch 2016). A word starts as its bytes or its characters. The pair
// with the lowest rank is merged, the leftmost one first, until no pair has a merge.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer/byte_tokens.h"
#include "text/tokenizer/word_model.h"

namespace trainer {

struct BpeModel {
  std::vector<std::optional<std::string>> tokens;  // id -> its text; nullopt: never in a word
  struct Merge {
    int32_t left, right, merged;
  };
  std::vector<Merge> merges;   // by rank
  bool ignore_merges = false;  // a word that is itself a token is not split, whatever the merges say
  bool byte_level = false;     // words start as bytes, not as characters
  bool byte_fallback = false;  // a character without a token starts as the tokens of its bytes (<0xE2>)
  std::optional<int32_t> unk;  // for characters without a token; nullopt: they are left out
  bool fuse_unk = false;       // unknown characters next to each other give one unk
};

class Bpe final : public WordModel {
 public:
  explicit Bpe(const BpeModel& model);
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  static constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
  struct Merged {
    int32_t rank = kNoRank, id = -1;
  };
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  // A hash table of pairs of ids, with open addressing. Most pairs that are looked up are not in it. One bit
  // for each hash rejects nearly all of these, and the bits fit in the processor's cache. Pairs of ids below
  // 256, usually single bytes, have their own table.
  class MergeTable {
   public:
    explicit MergeTable(const std::vector<BpeModel::Merge>& merges);
    Merged find(int32_t left, int32_t right) const;  // rank kNoRank: these two have no merge

   private:
    struct Slot {
      uint64_t pair;
      Merged merged;
    };
    size_t slot_of(uint64_t pair, uint64_t hash) const;
    bool may_have(uint64_t hash) const { return present_[hash % kBits / 64] >> hash % 64 & 1; }
    static bool is_low(int32_t left, int32_t right) { return static_cast<uint32_t>(left | right) < kLow; }
    static constexpr size_t kBits = 1 << 21, kLow = 256;
    std::vector<Slot> slots_;
    std::vector<uint64_t> present_;
    std::vector<Merged> low_;  // [left * kLow + right]
  };

  void append_start_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  int32_t id_of_character(std::string_view character) const;
  // These merge in place and return how many symbols are left, at the front of the buffer.
  size_t merge(std::span<int32_t> symbols) const;
  size_t merge_few(std::span<int32_t> symbols) const;
  size_t merge_many(std::span<int32_t> symbols) const;

  MergeTable merges_;
  bool byte_level_;
  int32_t id_of_byte_[256];  // without byte_level: only of ASCII
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> characters_;
  ByteTokens byte_tokens_;
  std::optional<int32_t> unk_;
  bool fuse_unk_;
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>
      whole_words_;  // with ignore_merges only
  mutable WordCache cache_;
};

}  // namespace trainer
