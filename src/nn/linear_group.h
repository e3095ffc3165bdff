// Several linear layers on the same input, as one autograd Function.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/layer_input.h"
#include "trainer/weights/weight.h"

namespace trainer {

// One layer of a group: x W^T + bias; `a` and `b`, if defined, add B(A(dropout(x))) * scale.
struct Projection {
  Weight weight;  // [out, in]
  std::optional<at::Tensor> bias;
  at::Tensor a, b;  // [r, in] and [out, r] in any type, or both undefined
  uint64_t key = 0;
  double dropout = 0.0, scale = 1.0;
};

// Takes x [rows, in] and row_keys [rows]; returns [rows, out] in x's type for each projection. Kept for
// backward: x, once, or what makes it again, if a trained tensor's gradient needs it; x A^T of width r for
// each adapter; of a weight, the tensors that hold it, never a converted copy. The dropped-out copy of x is
// computed again from its key. The gradients that reach x through the projections are summed before rounding.
// No gradient is computed for frozen tensors.
//
// Outside of training a GPU gives the results of weights that lie below each other as columns of one matrix.
//
// `type` is the type of the products: product_type(x), or x's type in generation, where a weight is read for
// only a few rows. A and B are converted to it for the products.
std::vector<at::Tensor> linear_group(const LayerInput& x, const at::Tensor& row_keys,
                                     const std::vector<Projection>& projections, at::ScalarType type);

}  // namespace trainer
