#include "memory/gpu_allocator.h"

#include <ATen/Context.h>

namespace trainer {

GpuAllocator& gpu_allocator() {
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(c10::kCUDA);
  if (!allocator->initialized()) at::globalContext().lazyInitDevice(c10::kCUDA);
  return static_cast<GpuAllocator&>(*allocator);
}

}  // namespace trainer
