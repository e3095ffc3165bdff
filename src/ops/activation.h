// The activations that a config.json can name, under the names of transformers (activations.py, ACT2CLS).
#pragma once

#include <string>

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
// With silu, gelu, gelu_tanh and relu only gate and up are kept for backward.
at::Tensor gated_activation(Activation kind, const at::Tensor& gate, const at::Tensor& up);

}  // namespace trainer
