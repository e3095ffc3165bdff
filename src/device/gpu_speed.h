// How fast a GPU computes, roughly.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "device/cuda_driver.h"

namespace trainer {

// Returns how many products of 16 bits, with sums in fp32, the units for matrices compute in a clock, by
// NVIDIA's papers on each architecture; GeForce's number where cards of one architecture differ. 0: not
// known.
int64_t products_per_clock(const CudaDevice& gpu);

// The same of one that this process sees; of the first if `device` has no index, as in a memory plan. 0:
// there is none.
int64_t products_per_clock(c10::Device device);

}  // namespace trainer
