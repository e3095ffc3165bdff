#include "trainer/memory/host_allocator.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "trainer/base/strings.h"

#include "memory/page_pool.h"

namespace trainer {
namespace {

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
