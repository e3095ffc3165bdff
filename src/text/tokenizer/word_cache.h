// A cache of the ids of words, because text repeats its words.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace trainer {

// It has a fixed size. It is safe to use from several threads at once, without locks: a reader that meets a
// writer finds nothing, and a writer that meets another writer stores nothing.
class WordCache {
 public:
  WordCache();

  // Appends the ids of `word` when it is known.
  bool find(std::string_view word, std::vector<int32_t>& ids) const;
  // Keeps the ids of a word that is short enough, in the place of another one.
  void insert(std::string_view word, std::span<const int32_t> ids);

 private:
  static constexpr size_t kSlots = 1 << 15, kWordUnits = 7, kIdUnits = 8;
  static constexpr size_t kLongestWord = 8 * kWordUnits, kMostIds = 2 * kIdUnits;
  using Unit = std::atomic<uint64_t>;
  using Key = std::array<uint64_t, kWordUnits>;  // the bytes of a word, zeros behind them

  // Two cache lines. The state's upper half is the sizes of word and ids, its lower half a count of changes
  // that is odd while one is made (a sequence lock, after Boehm, "Can seqlocks get along with programming
  // language memory models?", 2012).
  struct alignas(64) Slot {
    Unit state{0};
    std::array<Unit, kWordUnits> word{};
    std::array<Unit, kIdUnits> ids{};
  };

  static size_t pack(std::string_view word, Key& key);  // gives the number of units
  static size_t slot_of(const Key& key, size_t units, size_t size);

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace trainer
