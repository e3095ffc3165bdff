// ops/causal_conv.h with gradients.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

#include "ops/token_runs.h"

namespace trainer {

// Takes x [tokens, channels] and weight [channels, 1, width] in x's type. Returns x's shape; differentiable.
at::Tensor causal_convolution(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs);

// Returns causal_conv()'s gradients of x and of the weight, on every device; the second is undefined unless
// needed.
std::tuple<at::Tensor, at::Tensor> causal_convolution_gradients(const at::Tensor& grad, const at::Tensor& x,
                                                                const at::Tensor& weight,
                                                                const TokenRuns& runs, bool silu,
                                                                bool needs_weight);

}  // namespace trainer
