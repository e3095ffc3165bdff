// The memory of its device that a run uses, as numbers and as a line of text.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// In bytes. GPU: LibTorch's caching allocator. CPU: the allocator of host_allocator.h.
struct MemorySummary {
  c10::Device device = c10::kCPU;
  int64_t allocated = 0;  // living tensors
  int64_t reserved = 0;   // living tensors plus what is kept for reuse
  int64_t peak = 0;       // the most `allocated` since the start or reset_peak_memory()
  int64_t limit = 0;      // memory.limit; on a GPU without one, the GPU's memory; 0: none
  int64_t resident = 0;   // CPU: of the process, mapped files and libraries included; GPU: 0

  // The peak as a fraction of the limit; 0 without a limit.
  double share() const { return limit > 0 ? static_cast<double>(peak) / static_cast<double>(limit) : 0; }

  // "allocated 12.3 GB, reserved 14.0 GB, peak 18.2 GB, 76 % of 24.0 GB"
  std::string text() const;
};

// Returns the current numbers. Cheap enough for every step. On a GPU, call it after the first tensor.
MemorySummary memory_summary(c10::Device device);

}  // namespace trainer
