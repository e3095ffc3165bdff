// Several linear layers on the same input, as one autograd Function.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/layer_input.h"
#include "trainer/weights/weight.h"

#include "nn/adapter_packs.h"

namespace trainer {

// One layer of a group: x W^T + bias; `a` and `b`, if defined, add B(A(dropout(x))) * scale.
struct Projection {
  Weight weight;  // [out, in]
  std::optional<at::Tensor> bias;
  at::Tensor a, b;  // [r, in] and [out, r] in any type, or both undefined
  uint64_t key = 0;
  double dropout = 0.0, scale = 1.0;
};

// Returns whether the gradient of this leaf, in this type, is added to the sum of earlier micro-batches where
// it is made, in place of autograd: on a GPU, where that saves launches and memory's time, and nobody waits
// for autograd to add.
bool adds_to_gradient(const at::Tensor& leaf, at::ScalarType type);

// Takes x [..., in] and row_keys, one for each row of x; returns [..., out] in x's type for each projection.
// Kept for backward: x, once, or what makes it again, if a trained tensor's gradient needs it; x A^T of width
// r for each adapter; of a weight, the tensors that hold it, never a converted copy. The dropped-out copy of
// x is computed again from its key. The gradients that reach x through the projections are summed before
// rounding. No gradient is computed for frozen tensors.
//
// Outside of training a GPU gives the results of weights that lie below each other as columns of one matrix.
//
// `type` is the type of the products: product_type(x), or x's type in generation, where a weight is read for
// only a few rows. A and B are converted to it for the products. `packs`: ForwardContext::packs.
std::vector<at::Tensor> linear_group(const LayerInput& x, const at::Tensor& row_keys,
                                     const std::vector<Projection>& projections, at::ScalarType type,
                                     const std::shared_ptr<AdapterPacks>& packs = nullptr);

}  // namespace trainer
