// A causal convolution of each channel over the tokens of a sample, differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/token_runs.h"

namespace trainer {

// Takes x [tokens, channels] and weight [channels, 1, width] in x's type; returns x's shape and type
// (causal_conv() without SiLU). Keeps both.
at::Tensor causal_convolution(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs);

}  // namespace trainer
