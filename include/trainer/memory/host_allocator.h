// Memory for tensors on the CPU. The system hands out fresh pages of zeros for every large tensor, and a
// training step makes thousands of these: a quarter of a step's time went into page faults. So what a run has
// once needed stays.
#pragma once

#include <cstdint>

namespace trainer {

// From now on LibTorch takes the memory of CPU tensors from here. Freed blocks of 256 KB and more are kept
// for tensors of about their size; blocks in use and kept together never exceed the highest use so far by
// more than 32 MB, so that keeping adds nothing to the process's peak. Call once, before the first tensor.
void install_host_allocator();

struct HostMemory {
  int64_t in_use = 0, kept = 0, peak_in_use = 0;  // bytes of large blocks
};
HostMemory host_memory();

}  // namespace trainer
