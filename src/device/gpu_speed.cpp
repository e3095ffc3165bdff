#include "device/gpu_speed.h"

#include <algorithm>

namespace trainer {

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

int64_t products_per_clock(c10::Device device) {
  const auto& gpus = cuda_driver().devices;
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  return index < gpus.size() ? products_per_clock(gpus[index]) : 0;
}

}  // namespace trainer
