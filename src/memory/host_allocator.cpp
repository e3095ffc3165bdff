#include "trainer/memory/host_allocator.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "trainer/base/strings.h"

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

constexpr size_t kAlignment = 64;     // of data; a block's header is as long and lies before it
constexpr size_t kLarge = 256 << 10;  // smaller blocks are left to malloc
constexpr size_t kSlack = 32 << 20;   // kept beyond the peak

struct Header {
  size_t capacity;  // bytes from the pool; 0: from malloc
  int64_t charged;
};
static_assert(sizeof(Header) <= kAlignment);

Header* header_of(void* data) { return reinterpret_cast<Header*>(static_cast<char*>(data) - kAlignment); }

// Counts the memory in use and enforces the limit. Without a lock, because small tensors are allocated all
// the time.
class Account {
 public:
  // Throws c10::OutOfMemoryError if `bytes` more would exceed the limit, or if this allocation must fail.
  void take(int64_t bytes) {
    const int64_t after = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const int64_t limit = limit_.load(std::memory_order_relaxed);
    const int64_t call = allocations_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (limit > 0 && after > limit) [[unlikely]]
      refuse(bytes, limit);
    if (call == fail_at_.load(std::memory_order_relaxed)) [[unlikely]] {
      const int64_t then = fail_then_.exchange(0);
      fail_at_ = then > 0 ? call + then : 0;
      refuse(bytes, limit);
    }
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < after && !peak_.compare_exchange_weak(peak, after, std::memory_order_relaxed)) {
    }
  }
  void give_back(int64_t bytes) { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }

  // Takes the bytes back and throws the error with the numbers.
  [[noreturn]] void refuse(int64_t bytes, int64_t limit) {
    give_back(bytes);
    const int64_t in_use = in_use_, free = limit > 0 ? std::max<int64_t>(limit - in_use, 0) : -1;
    asked_ = bytes;
    free_ = free;
    allocated_ = in_use;
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "out of memory on the CPU: ", bytes_string(bytes), " asked for, ",
        limit > 0 ? concat(bytes_string(free), " free of the limit of ", bytes_string(limit), ", ")
                  : std::string(),
        bytes_string(in_use), " allocated");
  }

  void set_limit(int64_t bytes) { limit_ = bytes; }
  int64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_ = in_use_.load(); }
  void fail(int64_t n, int64_t then) {
    fail_then_ = then;
    fail_at_ = n > 0 ? allocations_ + n : 0;
  }
  HostMemory memory() const { return {in_use_, peak_, 0, limit_, allocations_}; }
  HostShortage shortage() const { return {asked_, free_, allocated_}; }

 private:
  std::atomic<int64_t> in_use_ = 0, peak_ = 0, limit_ = 0, allocations_ = 0, fail_at_ = 0, fail_then_ = 0;
  std::atomic<int64_t> asked_ = -1, free_ = -1, allocated_ = -1;
};

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : allocate_counted(bytes);
    return {data, data, &HostAllocator::free_data, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &HostAllocator::free_data; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  HostMemory memory() {
    const std::lock_guard lock(mutex_);
    HostMemory memory = account_.memory();
    memory.kept = static_cast<int64_t>(pool_.free_bytes());
    return memory;
  }
  Account& account() { return account_; }
  // Free memory of the pool makes room for memory that is allocated elsewhere.
  void trim() {
    const std::lock_guard lock(mutex_);
    shrink_kept(in_use_);
  }

 private:
  void* allocate_counted(size_t bytes) {
    const int64_t charge = charged_bytes(static_cast<int64_t>(bytes));
    account_.take(charge);
    void* data = bytes < kLarge ? allocate_small(bytes) : allocate_large(bytes);
    if (data == nullptr) account_.refuse(charge, account_.limit());
    header_of(data)->charged = charge;
    return data;
  }

  void* allocate_small(size_t bytes) {
    if (account_.limit() > 0 &&
        account_.in_use() + kept_bytes_.load(std::memory_order_relaxed) > account_.limit())
      trim();
    void* base = nullptr;
    if (posix_memalign(&base, kAlignment, bytes + kAlignment) != 0) return nullptr;
    static_cast<Header*>(base)->capacity = 0;
    return static_cast<char*>(base) + kAlignment;
  }

  void* allocate_large(size_t bytes) {
    constexpr size_t kUnit = PagePool::kUnit;
    const size_t capacity = (bytes + kAlignment + kUnit - 1) / kUnit * kUnit;
    const std::lock_guard lock(mutex_);
    void* base = pool_.take(capacity);
    if (base == nullptr && grow(capacity)) base = pool_.take(capacity);
    if (base == nullptr) return nullptr;
    static_cast<Header*>(base)->capacity = capacity;
    in_use_ += capacity;
    peak_ = std::max(peak_, in_use_);
    shrink_kept(in_use_);
    return static_cast<char*>(base) + kAlignment;
  }

  bool grow(size_t bytes) {
    shrink_kept(in_use_ + bytes);
    if (pool_.grow(bytes)) return true;
    pool_.shrink_to(0);
    return pool_.grow(bytes);
  }

  // Releases free memory that would add to the peak or exceed the limit when `in_use` bytes of blocks are in
  // use (blocks are a little larger than the bytes charged for them).
  void shrink_kept(size_t in_use) {
    size_t most = std::max(peak_, in_use) + kSlack - in_use;
    if (const int64_t limit = account_.limit(); limit > 0) {
      const int64_t room = limit - std::max(static_cast<int64_t>(in_use), account_.in_use());
      most = std::min(most, static_cast<size_t>(std::max<int64_t>(room, 0)));
    }
    pool_.shrink_to(most);
    kept_bytes_.store(static_cast<int64_t>(pool_.free_bytes()), std::memory_order_relaxed);
  }

  static void free_data(void* data);

  void free_large(Header* block) {
    const std::lock_guard lock(mutex_);
    in_use_ -= block->capacity;
    pool_.give_back(block, block->capacity);
    shrink_kept(in_use_);
  }

  Account account_;
  std::mutex mutex_;
  PagePool pool_;
  std::atomic<int64_t> kept_bytes_ = 0;
  size_t in_use_ = 0, peak_ = 0;  // bytes of large blocks
};

// Never destroyed: tensors with static storage are freed after everything else.
HostAllocator& host_allocator() {
  static auto* allocator = new HostAllocator;
  return *allocator;
}

void HostAllocator::free_data(void* data) {
  if (data == nullptr) return;
  Header* block = header_of(data);
  host_allocator().account_.give_back(block->charged);
  if (block->capacity == 0) {
    std::free(block);
  } else {
    host_allocator().free_large(block);
  }
}

}  // namespace

void install_host_allocator() { c10::SetCPUAllocator(&host_allocator(), /*priority=*/1); }

HostMemory host_memory() { return host_allocator().memory(); }
void reset_host_peak() { host_allocator().account().reset_peak(); }

void set_host_limit(int64_t bytes) {
  host_allocator().account().set_limit(bytes);
  host_allocator().trim();
}

HostShortage last_host_shortage() { return host_allocator().account().shortage(); }

HostCharge::HostCharge(int64_t bytes) : bytes_(charged_bytes(bytes)) {
  host_allocator().account().take(bytes_);
  host_allocator().trim();
}
HostCharge::~HostCharge() { host_allocator().account().give_back(bytes_); }

void fail_host_allocation(int64_t n, int64_t then) { host_allocator().account().fail(n, then); }

}  // namespace trainer
