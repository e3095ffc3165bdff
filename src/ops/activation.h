// The activations that a config.json can name, under the names of transformers (activations.py, ACT2CLS).
#pragma once

#include <string>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace trainer {

enum class Activation {
  silu,
  gelu,       // exact, with erf
  gelu_tanh,  // the approximation with tanh
  quick_gelu,
  relu,
  relu2,
  relu6,
  leaky_relu,
  tanh,
  sigmoid,
  mish,
  hardswish,
  linear,
};

// The activation of this name in config.json. Throws FormatError with the key, the name and the list of known
// names. Names of the same function ("silu" and "swish", "gelu_new" and "gelu_pytorch_tanh") give the same
// value.
Activation activation_named(const std::string& name, const std::string& key);

// Applies the activation to each element of x; the result has the shape and type of x. Differentiable.
at::Tensor activate(Activation kind, const at::Tensor& x);

// Returns activate(kind, gate) * up (Shazeer 2020); gate and up have the same shape and type. Differentiable.
// With silu, gelu, gelu_tanh and relu only gate and up are kept for backward. On a GPU, if they are columns
// of one matrix that nothing else holds, their gradients take their place there; so backward can run once.
at::Tensor gated_activation(Activation kind, const at::Tensor& gate, const at::Tensor& up);

// Returns whether it is an operator for that activation: silu, gelu, gelu_tanh and relu.
bool has_gated_kernel(Activation kind);

// The operators behind gated_activation(); `kind` is an Activation that has a kernel. gate and up have the
// same shape and type, and so has the result; the activated gate is rounded before the product.
at::Tensor gated_apply(const at::Tensor& gate, const at::Tensor& up, int64_t kind);
// Returns the gradients (d gate, d up), each rounded once. If the caller moves `grad` in and nothing else
// holds it, d up takes its memory.
std::tuple<at::Tensor, at::Tensor> gated_backward(at::Tensor grad, const at::Tensor& gate,
                                                  const at::Tensor& up, int64_t kind);

// The CPU's form of both: activation_cpu.cpp. The second writes its results into contiguous tensors; `g_up`
// may be `grad`.
decltype(gated_apply) gated_activation_cpu;
void gated_activation_backward_cpu(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                                   int64_t kind, const at::Tensor& g_gate, const at::Tensor& g_up);

}  // namespace trainer
