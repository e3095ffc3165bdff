// Gradients of what is composed of LibTorch's operators, for backward of a Function of ours.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

namespace trainer {

// Computes forward(inputs) again and lets LibTorch differentiate it. Returns the gradients of the first
// `needed` inputs, and undefined tensors up to `arguments` in all.
template <class Forward>
torch::autograd::variable_list composed_gradients(const Forward& forward,
                                                  const torch::autograd::variable_list& inputs,
                                                  const at::Tensor& grad, size_t needed, size_t arguments) {
  const at::AutoGradMode record(true);
  torch::autograd::variable_list in;
  for (const at::Tensor& input : inputs) in.push_back(input.detach().requires_grad_(in.size() < needed));
  const at::Tensor out = forward(in);
  in.resize(needed);
  torch::autograd::variable_list gradients = torch::autograd::grad({out}, in, {grad});
  gradients.resize(arguments);
  return gradients;
}

}  // namespace trainer
