// The memory of a device that this process uses: now, at its peak, and kept for reuse.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

namespace trainer {

struct MemoryUse {
  int64_t current = 0, peak = 0;  // bytes: GPU: LibTorch's allocations; CPU: the process's resident memory
};
MemoryUse memory_use(c10::Device device);
void reset_peak_memory(c10::Device device);

// Gives cached GPU memory back to the driver. Does nothing on the CPU, where cached blocks add nothing to the
// peak.
void empty_cache(c10::Device device);

// Has the C library return every freed block of 1 MB and more to the system at once. Without it, freed blocks
// stay and fragment the heap: a merge was seen to take up to 26 MB more, depending on the length of a path.
void return_large_blocks();

// Sets up the CPU: that, the allocator of CPU tensors (host_allocator.h), rounding of numbers below 1e-38 to
// zero, and the number of threads of LibTorch's operators (0: OMP_NUM_THREADS, or one per core without it),
// which it starts. Call once, before the first tensor. Throws ConfigError when the system allows fewer
// threads.
void set_up_cpu(int64_t threads);

}  // namespace trainer
