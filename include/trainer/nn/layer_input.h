// What a layer multiplies, and how backward can make it again instead of keeping it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// x [..., size]. If `make` is set, make(from) is x again, to the last bit, in any shape with the same rows.
// Then a layer whose gradients need x keeps the tensors of `from`, which others keep anyway, in its place
// (ForwardContext::light).
struct LayerInput {
  LayerInput(at::Tensor x) : x(std::move(x)) {}  // kept

  using Make = std::function<at::Tensor(const std::vector<at::Tensor>& from)>;

  at::Tensor x;
  std::vector<at::Tensor> from;  // without autograd's history
  Make make;
};

}  // namespace trainer
