// What was computed for a word, kept: text repeats its words.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainer {

// Bounded; safe to use from several threads at once (a lock for each of many parts, so that threads seldom
// meet).
class WordCache {
 public:
  // Appends the ids of `word` when it is known.
  bool find(std::string_view word, std::vector<int32_t>& ids) const;
  void insert(std::string_view word, std::vector<int32_t> ids);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  struct Part {
    mutable std::mutex mutex;
    std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> words;
  };
  static constexpr size_t kParts = 64, kWordsPerPart = 2048, kLongestWord = 64;

  size_t part_of(std::string_view word) const { return Hash()(word) / 64 % kParts; }
  std::array<Part, kParts> parts_;
};

}  // namespace trainer
