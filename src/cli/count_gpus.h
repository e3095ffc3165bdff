// Counts the GPUs that a run of this process could use, without LibTorch and without starting CUDA.
#pragma once

#include <cstdint>
#include <string>

namespace trainer::cli {

struct GpuCount {
  int64_t usable = 0;
  std::string text;  // "this machine shows 4 GPUs", "CUDA_VISIBLE_DEVICES=0,1 leaves 2 of 4 GPUs"
};

// Asks the driver's management library, and counts what CUDA_VISIBLE_DEVICES leaves of its answer, as CUDA
// does (docs.nvidia.com/cuda/cuda-c-programming-guide, "CUDA Environment Variables").
GpuCount count_gpus();

// Returns the `count` GPUs with the most free memory, best first, as CUDA_VISIBLE_DEVICES takes them
// ("GPU-1a2b..., GPU-..."). "" if that variable is set, or if not all is known of them: then CUDA's own order
// counts.
std::string freest_gpus(int64_t count);

}  // namespace trainer::cli
