// The type that a model computes in.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"

namespace trainer {

// Returns model.dtype, or with auto the best type for the device. Throws DeviceError for bf16 on a GPU that
// does not support it.
at::ScalarType choose_dtype(const ModelConfig& config, at::Device device);

}  // namespace trainer
