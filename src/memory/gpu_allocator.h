// LibTorch's caching allocator of GPUs, whose own header needs CUDA's.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace trainer {

// The first virtual functions of c10::cuda::CUDACachingAllocator::CUDAAllocator, in its order, so that a call
// finds the right one (tests/memory/gpu_allocator_test.cpp compares the two).
class GpuAllocator : public c10::DeviceAllocator {
 public:
  virtual void* raw_alloc(size_t bytes) = 0;
  virtual void* raw_alloc_with_stream(size_t bytes, void* stream) = 0;
  virtual void raw_delete(void* data) = 0;
  virtual void init(int device_count) = 0;
  virtual double getMemoryFraction(c10::DeviceIndex device) = 0;
  virtual void setMemoryFraction(double fraction, c10::DeviceIndex device) = 0;
};

// Starts CUDA if that has not happened yet, because only then the allocator has devices. Throws if there is
// no CUDA.
GpuAllocator& gpu_allocator();

}  // namespace trainer
