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

}  // namespace trainer
