// What tests of kernels share: random tensors, relative differences, gradients by plain autograd.
#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

namespace trainer {

class Random {
 public:
  explicit Random(uint64_t seed) : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}
  // fp64, normally distributed, rounded to `type`, so that every precision computes with the same numbers
  at::Tensor normal(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
    return at::randn(shape, generator_, at::kDouble).to(type);
  }

 private:
  at::Generator generator_;
};

// |a - b| / |b| in fp64
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.detach().to(at::kDouble);
  const double size = reference.norm().item<double>();
  const double difference = (a.detach().to(at::kDouble) - reference).norm().item<double>();
  return size > 0 ? difference / size : difference;  // gradients may be zero by definition
}

using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<at::Tensor(const Tensors&)>;

// The function's value at `inputs` in `type`, then the gradients of sum(value * weight) at each input.
inline Tensors value_and_gradients(const TensorFunction& function, const Tensors& inputs,
                                   const at::Tensor& weight, at::ScalarType type) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true));
  }
  const at::Tensor value = function(leaves);
  Tensors out = torch::autograd::grad({value}, leaves, {weight.to(type)});
  out.insert(out.begin(), value.detach());
  return out;
}

}  // namespace trainer
