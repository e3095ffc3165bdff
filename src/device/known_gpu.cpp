#include "device/known_gpu.h"

#include <algorithm>

namespace trainer {

const CudaDevice* known_gpu(c10::Device gpu) {
  const auto& gpus = cuda_driver().devices;
  const auto index = static_cast<size_t>(std::max<int>(gpu.index(), 0));
  return index < gpus.size() ? &gpus[index] : nullptr;
}

bool has_fp8_units(const CudaDevice& gpu) { return 10 * gpu.major + gpu.minor >= 89; }

int64_t products_per_clock(const CudaDevice& gpu) {
  const int capability = 10 * gpu.major + gpu.minor;
  const int64_t of_a_processor = capability >= 120   ? 256
                                 : capability >= 100 ? 4096
                                 : capability >= 90  ? 2048
                                 : capability > 80   ? 256
                                 : capability == 80  ? 1024
                                 : capability >= 70  ? 512
                                                     : 0;
  return of_a_processor * gpu.processors;
}

}  // namespace trainer
