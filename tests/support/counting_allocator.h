// Measures what LibTorch allocates on the CPU, independently of the trainer's own allocator.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include <c10/core/CPUAllocator.h>

namespace trainer {

// Counts what LibTorch allocates on the CPU, in whole cache lines.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static auto* allocator = new CountingAllocator;  // tensors may outlive all else
    return *allocator;
  }
  c10::DataPtr allocate(size_t bytes) override {
    const int64_t charged = (static_cast<int64_t>(bytes) + 63) / 64 * 64;
    void* base = aligned_alloc(64, static_cast<size_t>(charged) + 64);
    *static_cast<int64_t*>(base) = charged;
    const int64_t now = in_use_ += charged;
    peak_ = std::max(peak_.load(), now);
    void* data = static_cast<char*>(base) + 64;
    return {data, data, &CountingAllocator::free_data, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::free_data; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  int64_t in_use() const { return in_use_; }
  int64_t peak() const { return peak_; }
  void reset_peak() { peak_ = in_use_.load(); }

 private:
  static void free_data(void* data) {
    void* base = static_cast<char*>(data) - 64;
    instance().in_use_ -= *static_cast<int64_t*>(base);
    free(base);
  }
  std::atomic<int64_t> in_use_ = 0, peak_ = 0;
};

// Makes it LibTorch's allocator for as long as it lives. Tests of other files use the trainer's own.
class CountsAllocations {
 public:
  CountsAllocations() : before_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(&CountingAllocator::instance(), kPriority);
  }
  ~CountsAllocations() { c10::SetCPUAllocator(before_, kPriority); }
  CountsAllocations(const CountsAllocations&) = delete;
  CountsAllocations& operator=(const CountsAllocations&) = delete;

 private:
  static constexpr uint8_t kPriority = 1;  // as install_host_allocator() has
  c10::Allocator* before_;
};

}  // namespace trainer
