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

// Throws FormatError naming the key, the name and those that are known. Names that mean the same function
// ("silu" and "swish", "gelu_new" and "gelu_pytorch_tanh") give the same value.
Activation activation_named(const std::string& name, const std::string& key);

// Element by element; differentiable.
at::Tensor activate(Activation kind, const at::Tensor& x);

// activate(kind, gate) * up (Shazeer 2020), gate and up of one shape and type; differentiable. With silu,
// gelu, gelu_tanh and relu nothing but gate and up is kept for backward.
at::Tensor gated_activation(Activation kind, const at::Tensor& gate, const at::Tensor& up);

}  // namespace trainer
