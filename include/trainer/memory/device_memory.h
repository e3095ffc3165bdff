// The memory of a device as this process uses it: how much, its peak, and what is kept for reuse.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace trainer {

struct MemoryUse {
  int64_t current = 0, peak = 0;  // bytes: GPU: LibTorch's allocations; CPU: the process's resident memory
};
MemoryUse memory_use(c10::Device device);
void reset_peak_memory(c10::Device device);

// Gives cached GPU memory back to the driver; nothing on the CPU, where what is kept adds nothing to the
// peak.
void empty_cache(c10::Device device);

// Once, before the first tensor: the allocator of CPU tensors (host_allocator.h), numbers below 1e-38 taken
// for zero, and the threads of LibTorch's operators (0: OMP_NUM_THREADS, else one per core).
void set_up_cpu(int64_t threads);

}  // namespace trainer
