// What is known of the GPU that a device stands for.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "device/cuda_driver.h"

namespace trainer {

// Returns the GPU of a device; the first that this process sees if `gpu` has no index, as in a memory plan.
// nullptr: there is none.
const CudaDevice* known_gpu(c10::Device gpu);

// Returns whether its units for matrices multiply e4m3: compute capability 8.9, and from 9.0 on.
bool has_fp8_units(const CudaDevice& gpu);

// Returns how many products of 16 bits, with sums in fp32, these units compute in a clock, by NVIDIA's papers
// on each architecture; GeForce's number where cards of one architecture differ. 0: not known.
int64_t products_per_clock(const CudaDevice& gpu);

}  // namespace trainer
