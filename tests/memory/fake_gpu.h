// GPUs for tests that need none: an allocator in place of LibTorch's, which only counts.
#pragma once

#include <array>

#include "memory/gpu_allocator.h"

namespace trainer::test {

class FakeGpus final : public GpuAllocator {
 public:
  struct Gpu {
    int64_t free = 0, total = 0, reserved = 0;
    double fraction = 1;
    int64_t allocated = 0, peak = 0;  // of tensors
    int64_t emptied = 0;              // how often the cache was given back
  };
  std::array<Gpu, 2> gpus{};

  // LibTorch's allocator of GPUs from now on.
  static FakeGpus& install() {
    static auto* const fake = new FakeGpus;
    c10::SetAllocator(c10::kCUDA, fake, /*priority=*/255);
    fake->gpus = {};
    return *fake;
  }

  c10::DataPtr allocate(size_t) override { return {nullptr, c10::Device(c10::kCUDA, 0)}; }
  void copy_data(void*, const void*, size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (Gpu& gpu : gpus) {
      gpu.reserved = gpu.allocated;
      gpu.emptied++;
    }
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.reserved_bytes[0].current = of(device).reserved;
    stats.allocated_bytes[0].current = of(device).allocated;
    stats.allocated_bytes[0].peak = of(device).peak;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { of(device).peak = of(device).allocated; }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {of(device).free, of(device).total};
  }
  void* raw_alloc(size_t) override { return nullptr; }
  void* raw_alloc_with_stream(size_t, void*) override { return nullptr; }
  void raw_delete(void*) override {}
  void init(int) override {}
  double getMemoryFraction(c10::DeviceIndex device) override { return of(device).fraction; }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    of(device).fraction = fraction;
  }
  void getExpandableSegmentSizes() override {}
  void enable() override {}
  void isEnabled() override {}
  void cacheInfo() override {}
  void getBaseAllocation() override {}
  void recordStream() override {}
  void snapshot() override {}
  void beginAllocateToPool(c10::DeviceIndex, c10::MempoolId_t, std::function<bool(CUstream_st*)>) override {}
  void endAllocateToPool(c10::DeviceIndex, c10::MempoolId_t) override {}
  void releasePool(c10::DeviceIndex, c10::MempoolId_t) override {}

 private:
  Gpu& of(c10::DeviceIndex device) { return gpus.at(static_cast<size_t>(device)); }
};

}  // namespace trainer::test
