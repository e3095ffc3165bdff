// The operators behind gated_activation(); `kind` is an Activation that has a kernel.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

#include "ops/activation.h"

namespace trainer {

// silu, gelu, gelu_tanh and relu.
bool has_gated_kernel(Activation kind);

// gate and up have the same shape and type, and so has the result; the activated gate is rounded before the
// product.
at::Tensor gated_apply(const at::Tensor& gate, const at::Tensor& up, int64_t kind);
// Returns the gradients (d gate, d up), each rounded once. If the caller moves `grad` in and nothing else
// holds it, d up takes its memory.
std::tuple<at::Tensor, at::Tensor> gated_backward(at::Tensor grad, const at::Tensor& gate,
                                                  const at::Tensor& up, int64_t kind);

// What CUDA uses: gated_activation.cu, or a composite of LibTorch's operators if that does not work.
// The backward passes return d gate and write d up into `g_up`, which may be `grad`.
at::Tensor gated_gpu(const at::Tensor& gate, const at::Tensor& up, int64_t kind);
at::Tensor gated_backward_gpu(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                              int64_t kind, at::Tensor g_up);
at::Tensor gated_composite(const at::Tensor& gate, const at::Tensor& up, int64_t kind);
at::Tensor gated_backward_composite(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                                    int64_t kind, at::Tensor g_up);

}  // namespace trainer
