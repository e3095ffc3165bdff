// A copy of a trained weight on the device, for the time in which its block runs.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

namespace trainer {

// Returns `copy` as a differentiable tensor. Its gradient goes to OffloadedWeight::take_gradient, and not to
// the leaf, which is on another device. `weight` must be trained.
at::Tensor copy_of_weight(const Weight& weight, const at::Tensor& copy);

}  // namespace trainer
