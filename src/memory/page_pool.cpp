#include "memory/page_pool.h"

#include <algorithm>
#include <sys/mman.h>

namespace trainer {
namespace {

constexpr size_t kHugePage = 2 << 20;

uintptr_t round_down(uintptr_t value, size_t step) { return value / step * step; }
uintptr_t round_up(uintptr_t value, size_t step) { return round_down(value + step - 1, step); }

void unmap(uintptr_t begin, uintptr_t end) {
  if (end > begin) munmap(reinterpret_cast<void*>(begin), end - begin);
}

// Maps anonymous pages; 0 if the system has none.
uintptr_t map_anywhere(size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return base == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(base);
}

// The same, beginning at a huge page. Linux does that by itself from 6.7 on, and then fills gaps between
// ranges.
uintptr_t map_huge_pages(size_t bytes) {
  const uintptr_t as_given = map_anywhere(bytes);
  if (as_given % kHugePage == 0) return as_given;
  unmap(as_given, as_given + bytes);
  const size_t reserved = bytes + kHugePage;
  const uintptr_t base = map_anywhere(reserved);
  if (base == 0) return 0;
  const uintptr_t begin = round_up(base, kHugePage);
  unmap(base, begin);
  unmap(begin + bytes, base + reserved);
  return begin;
}

}  // namespace

void PagePool::insert(uintptr_t begin, size_t bytes) {
  ranges_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
  free_bytes_ += bytes;
}

PagePool::Ranges::iterator PagePool::erase(Ranges::iterator range) {
  by_size_.erase({range->second, range->first});
  free_bytes_ -= range->second;
  return ranges_.erase(range);
}

void* PagePool::take(size_t bytes) {
  const auto found = by_size_.lower_bound({bytes, 0});
  if (found == by_size_.end()) return nullptr;
  const auto [size, begin] = *found;
  erase(ranges_.find(begin));
  if (size > bytes) insert(begin + bytes, size - bytes);
  return reinterpret_cast<void*>(begin);
}

void PagePool::give_back(void* data, size_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = erase(next);
  }
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      erase(before);
    }
  }
  insert(begin, bytes);
}

bool PagePool::grow(size_t bytes) {
  bytes = round_up(bytes, kHugePage);
  const uintptr_t begin = map_huge_pages(bytes);
  if (begin == 0) return false;
  madvise(reinterpret_cast<void*>(begin), bytes, MADV_HUGEPAGE);
  give_back(reinterpret_cast<void*>(begin), bytes);
  return true;
}

// From the longest range first, and whole huge pages of it: the system would keep a huge page of which a part
// is used.
void PagePool::shrink_to(size_t bytes) {
  while (free_bytes_ > bytes) {
    const auto [size, begin] = *by_size_.rbegin();
    const uintptr_t end = begin + size;
    const uintptr_t last = round_down(end, kHugePage);
    const size_t wanted = round_up(free_bytes_ - bytes, kHugePage);
    uintptr_t from = round_up(begin, kHugePage), to = last;
    if (from < to) {
      from = to - std::min<size_t>(wanted, to - from);
    } else {
      from = begin;
      to = end;
    }
    erase(ranges_.find(begin));
    unmap(from, to);
    if (from > begin) insert(begin, from - begin);
    if (to < end) insert(to, end - to);
  }
}

}  // namespace trainer
