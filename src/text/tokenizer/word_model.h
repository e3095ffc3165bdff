// A cache of the ids of words: words occur again and again in text.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace trainer {

// Its size is fixed. It is safe to use from several threads at once and has no locks: a reader finds nothing
// in a slot that is being written, and a writer skips such a slot.
class WordCache {
 public:
  WordCache();

  // Appends the ids of `word` and returns true; returns false if the word is not in the cache.
  bool find(std::string_view word, std::vector<int32_t>& ids) const;
  // Stores the ids of a word, in place of another word. Does nothing if the word or its ids are too long.
  void insert(std::string_view word, std::span<const int32_t> ids);

 private:
  static constexpr size_t kSlots = 1 << 15, kWordUnits = 7, kIdUnits = 8;
  static constexpr size_t kLongestWord = 8 * kWordUnits, kMostIds = 2 * kIdUnits;
  using Unit = std::atomic<uint64_t>;
  using Key = std::array<uint64_t, kWordUnits>;  // the bytes of a word, zeros behind them

  // Two cache lines. The upper half of `state` holds the sizes of the word and of its ids. The lower half
  // counts changes and is odd during a change (a sequence lock: Boehm, "Can seqlocks get along with
  // programming language memory models?", 2012).
  struct alignas(64) Slot {
    Unit state{0};
    std::array<Unit, kWordUnits> word{};
    std::array<Unit, kIdUnits> ids{};
  };

  static size_t pack(std::string_view word, Key& key);  // returns the number of units
  static size_t slot_of(const Key& key, size_t units, size_t size);

  std::unique_ptr<Slot[]> slots_;
};

// Turns a word into ids: BPE or a unigram language model.

// Safe to use from several threads at once.
class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of a word (valid UTF-8). Throws DataError if the model has no ids for a part of it.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace trainer
