// Pages for large tensors, which stay in the process after their use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace trainer {

// Free ranges of pages. A range grows together with free neighbours, and a block is cut from the smallest
// range that holds it. So pages that were once written serve blocks of any size: micro-batches have other
// sizes every time, and a list of free blocks would seldom have one that fits. Not thread-safe.
class PagePool {
 public:
  static constexpr size_t kUnit = 64 << 10;  // all sizes are multiples of it

  // Returns `bytes` of free memory; nullptr if no free range is that long.
  void* take(size_t bytes);
  void give_back(void* begin, size_t bytes);

  // Adds a free range of at least `bytes` from the system: whole huge pages, which save page faults and
  // address translation. False if the system has none.
  bool grow(size_t bytes);
  // Returns memory to the system until at most `bytes` are free.
  void shrink_to(size_t bytes);

  size_t free_bytes() const { return free_bytes_; }

 private:
  using Ranges = std::map<uintptr_t, size_t>;  // begin -> bytes

  void insert(uintptr_t begin, size_t bytes);
  Ranges::iterator erase(Ranges::iterator range);

  Ranges ranges_;
  std::set<std::pair<size_t, uintptr_t>> by_size_;
  size_t free_bytes_ = 0;
};

}  // namespace trainer
