// Whether a GPU runs the kernels of recurrent layers (causal_conv.cu, gated_delta.cu).
#pragma once

#include <c10/core/Device.h>

namespace trainer {

// Returns whether there are kernels and TRAINER_RECURRENT_KERNELS is not `off`, which composes those layers
// of LibTorch's operators, to compare the two.
bool uses_recurrent_kernels(c10::Device device);

}  // namespace trainer
