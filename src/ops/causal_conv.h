// A causal convolution of each channel over the tokens of a sample (depthwise; transformers,
// causal_conv1d_fn), with or without SiLU behind it.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

#include "ops/token_runs.h"

namespace trainer {

// Takes x [tokens, channels] and weight [channels, 1, width] in x's type; the last of a channel's weights
// belongs to the token itself. Returns x's shape and type; 0 in padding. What lies before a run counts as 0.
// Summed in fp32, rounded, and rounded again after SiLU.
at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs, bool silu);

// Returns the gradients of x and of the weight; the second is undefined unless needed. Sums have one order.
// On a GPU only where takes_causal_conv(); elsewhere there LibTorch differentiates causal_conv_composed().
std::tuple<at::Tensor, at::Tensor> causal_conv_backward(const at::Tensor& grad, const at::Tensor& x,
                                                        const at::Tensor& weight, const TokenRuns& runs,
                                                        bool silu, bool needs_weight);

// Whether there are kernels for x there, with weights of this width.
bool takes_causal_conv(const at::Tensor& x, int64_t width);

// The CPU's form of both: causal_conv_cpu.cpp.
decltype(causal_conv) causal_conv_cpu;
// LibTorch's operators, where there is no kernel (gated_delta_composed.cpp). Differentiable where gradients
// are recorded.
decltype(causal_conv) causal_conv_composed;
decltype(causal_conv_backward) causal_conv_backward_cpu;

}  // namespace trainer
