// Inputs of linear layers that backward can make again (ForwardContext::light).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/nn/layer_input.h"

#include "nn/norm.h"
#include "ops/activation.h"

namespace trainer {

// Returns `normed`, which is the norm of x.
LayerInput norm_input(const RmsNorm& norm, const at::Tensor& x, const at::Tensor& normed,
                      const ForwardContext& context);

// Returns gated_activation(kind, gate, up).
LayerInput gated_input(Activation kind, const at::Tensor& gate, const at::Tensor& up,
                       const ForwardContext& context);

// Returns dropout(in, row_keys, key, p).
LayerInput dropped_input(const LayerInput& in, const at::Tensor& row_keys, uint64_t key, double p);

}  // namespace trainer
