// Finds the place of a key in a list of items by its hash.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "text/jinja/budget.h"

namespace trainer::jinja {

inline uint64_t hash_of(std::string_view bytes) { return std::hash<std::string_view>()(bytes); }
// The finalizer of SplitMix64: neighboring numbers go to distant slots.
inline uint64_t hash_of(uint64_t number) {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

// An open hash table of item numbers. Each probe is counted, so collisions use up the budget.
class HashIndex {
 public:
  bool empty() const { return hashes_.empty(); }

  // Returns the number of the item with this hash for which is_key(number) holds.
  template <class IsKey>
  std::optional<size_t> find(uint64_t hash, const IsKey& is_key) const {
    for (size_t slot = hash & mask();; slot = (slot + 1) & mask()) {
      Budget::spend(2);
      if (slots_[slot] == 0) return std::nullopt;
      const size_t item = slots_[slot] - 1;
      if (hashes_[item] == hash && is_key(item)) return item;
    }
  }

  // Adds the next item; its key must be new.
  void add(uint64_t hash) {
    hashes_.push_back(hash);
    if (2 * hashes_.size() > slots_.size()) {
      slots_.assign(std::max<size_t>(64, 2 * slots_.size()), 0);
      for (size_t item = 0; item < hashes_.size(); item++) enter(item);
    } else {
      enter(hashes_.size() - 1);
    }
  }

 private:
  size_t mask() const { return slots_.size() - 1; }
  void enter(size_t item) {
    size_t slot = hashes_[item] & mask();
    for (; slots_[slot] != 0; slot = (slot + 1) & mask()) Budget::spend(2);
    slots_[slot] = static_cast<uint32_t>(item + 1);
  }

  CountedVector<uint64_t> hashes_;  // of the items
  CountedVector<uint32_t> slots_;   // the number of an item + 1; 0: free. Their count is a power of two
};

}  // namespace trainer::jinja
