// LibTorch's caching allocator of GPUs, whose own header needs CUDA's.
#pragma once

#include <functional>

#include <c10/core/CachingDeviceAllocator.h>

struct CUstream_st;  // CUDA's name for what a stream points to

namespace trainer {

// The first virtual functions of c10::cuda::CUDACachingAllocator::CUDAAllocator, in its order, so that a call
// finds the right one (tests/memory/gpu_limit_test.cpp compares the two). Those that are not called have no
// parameters here.
class GpuAllocator : public c10::DeviceAllocator {
 public:
  virtual void* raw_alloc(size_t bytes) = 0;
  virtual void* raw_alloc_with_stream(size_t bytes, void* stream) = 0;
  virtual void raw_delete(void* data) = 0;
  virtual void init(int device_count) = 0;
  virtual double getMemoryFraction(c10::DeviceIndex device) = 0;
  virtual void setMemoryFraction(double fraction, c10::DeviceIndex device) = 0;
  virtual void getExpandableSegmentSizes() = 0;
  virtual void enable() = 0;
  virtual void isEnabled() = 0;
  virtual void cacheInfo() = 0;
  virtual void getBaseAllocation() = 0;
  using c10::DeviceAllocator::recordStream;
  virtual void recordStream() = 0;
  virtual void snapshot() = 0;
  // From now on, what is allocated on streams for which `filter` says so comes from memory that nothing else
  // gets, until releasePool().
  virtual void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                   std::function<bool(CUstream_st*)> filter) = 0;
  virtual void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) = 0;
  virtual void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) = 0;
};

// Starts CUDA if that has not happened yet, because only then the allocator has devices. Throws if there is
// no CUDA.
GpuAllocator& gpu_allocator();

}  // namespace trainer
