#include "trainer/memory/host_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <sys/mman.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr size_t kAlignment = 64;     // of data; a block's header lies before it and is as long
constexpr size_t kLarge = 256 << 10;  // smaller blocks are left to malloc
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kSlack = 32 << 20;  // kept beyond the peak

struct Header {
  size_t capacity;  // bytes of the mapping; 0: from malloc
};
static_assert(sizeof(Header) <= kAlignment);

Header* header_of(void* data) { return reinterpret_cast<Header*>(static_cast<char*>(data) - kAlignment); }

[[noreturn]] void out_of_memory(size_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, false,
                   "out of memory on the CPU: ", bytes_string(static_cast<int64_t>(bytes)), " asked for");
}

// Anonymous pages; large ones begin at a huge page, which spares faults and address translation.
void* map_pages(size_t bytes) {
  const bool huge = bytes >= 2 * kHugePage;
  const size_t reserved = huge ? bytes + kHugePage : bytes;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  if (!huge) return base;
  const auto address = reinterpret_cast<uintptr_t>(base);
  const uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  if (begin > address) munmap(base, begin - address);
  if (const size_t behind = address + reserved - (begin + bytes); behind > 0) {
    munmap(reinterpret_cast<void*>(begin + bytes), behind);
  }
  madvise(reinterpret_cast<void*>(begin), bytes, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(begin);
}

// Blocks that are free, by size and by age.
class KeptBlocks {
 public:
  // One of at least `bytes` and at most an eighth more; nullptr when there is none.
  Header* take(size_t bytes) {
    const auto found = by_size_.lower_bound(bytes);
    if (found == by_size_.end() || found->first > bytes + bytes / 8) return nullptr;
    Header* block = *found->second;
    by_age_.erase(found->second);
    by_size_.erase(found);
    total_ -= block->capacity;
    return block;
  }
  void put(Header* block) {
    by_age_.push_back(block);
    by_size_.emplace(block->capacity, std::prev(by_age_.end()));
    total_ += block->capacity;
  }
  // Oldest first, until at most `bytes` are kept.
  void shrink_to(size_t bytes) {
    while (total_ > bytes && !by_age_.empty()) {
      Header* oldest = by_age_.front();
      auto [first, last] = by_size_.equal_range(oldest->capacity);
      by_size_.erase(std::find_if(first, last, [&](const auto& entry) { return *entry.second == oldest; }));
      by_age_.pop_front();
      total_ -= oldest->capacity;
      munmap(oldest, oldest->capacity);
    }
  }
  size_t total() const { return total_; }

 private:
  std::list<Header*> by_age_;
  std::multimap<size_t, std::list<Header*>::iterator> by_size_;
  size_t total_ = 0;
};

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : bytes < kLarge ? allocate_small(bytes) : allocate_large(bytes);
    return {data, data, &HostAllocator::free_data, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &HostAllocator::free_data; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  HostMemory memory() {
    const std::lock_guard lock(mutex_);
    return {static_cast<int64_t>(in_use_), static_cast<int64_t>(kept_.total()), static_cast<int64_t>(peak_)};
  }

 private:
  static void* allocate_small(size_t bytes) {
    void* base = nullptr;
    if (posix_memalign(&base, kAlignment, bytes + kAlignment) != 0) out_of_memory(bytes);
    static_cast<Header*>(base)->capacity = 0;
    return static_cast<char*>(base) + kAlignment;
  }

  void* allocate_large(size_t bytes) {
    const size_t granule = bytes < 4 * kHugePage ? kHugePage / 32 : kHugePage;
    const size_t capacity = (bytes + kAlignment + granule - 1) / granule * granule;
    const std::lock_guard lock(mutex_);
    Header* block = kept_.take(capacity);
    if (block == nullptr) block = map_block(capacity);
    if (block == nullptr) out_of_memory(bytes);
    in_use_ += block->capacity;
    peak_ = std::max(peak_, in_use_);
    return reinterpret_cast<char*>(block) + kAlignment;
  }

  Header* map_block(size_t capacity) {
    const size_t after = in_use_ + capacity, most = std::max(peak_, after) + kSlack;
    kept_.shrink_to(most - after);
    void* base = map_pages(capacity);
    if (base == nullptr) {
      kept_.shrink_to(0);
      base = map_pages(capacity);
    }
    if (base == nullptr) return nullptr;
    auto* block = static_cast<Header*>(base);
    block->capacity = capacity;
    return block;
  }

  static void free_data(void* data);

  void free_large(Header* block) {
    const std::lock_guard lock(mutex_);
    in_use_ -= block->capacity;
    kept_.put(block);
    kept_.shrink_to(peak_ + kSlack - in_use_);
  }

  std::mutex mutex_;
  KeptBlocks kept_;
  size_t in_use_ = 0, peak_ = 0;
};

// Never destroyed: tensors of static storage are freed after everything else.
HostAllocator& host_allocator() {
  static auto* allocator = new HostAllocator;
  return *allocator;
}

void HostAllocator::free_data(void* data) {
  if (data == nullptr) return;
  Header* block = header_of(data);
  if (block->capacity == 0) {
    std::free(block);
  } else {
    host_allocator().free_large(block);
  }
}

}  // namespace

void install_host_allocator() { c10::SetCPUAllocator(&host_allocator(), /*priority=*/1); }
HostMemory host_memory() { return host_allocator().memory(); }

}  // namespace trainer
