// Several linear layers on the same input, as one autograd Function.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/weight.h"

namespace trainer {

// One layer of a group: x W^T + bias, and with `a` and `b` + B(A(dropout(x))) * scale.
struct Projection {
  Weight weight;  // [out, in]
  std::optional<at::Tensor> bias;
  at::Tensor a, b;  // [r, in] and [out, r], or both undefined
  uint64_t key = 0;
  double dropout = 0.0, scale = 1.0;
};

// x [rows, in], row_keys [rows] -> for each projection [rows, out] in x's type. Kept for backward: x, once,
// and x A^T of width r for each adapter; of a weight what it is kept in, never what was made of it. The
// dropped-out copy of x is made again from its key; the gradients that reach x through the projections are
// summed before they are rounded; no gradient is computed for what is frozen.
//
// `type`: of the products, product_type(x) or, in generation where a weight is read for a few rows only, x's.
// A and B are in it.
std::vector<at::Tensor> linear_group(const at::Tensor& x, const at::Tensor& row_keys,
                                     const std::vector<Projection>& projections, at::ScalarType type);

}  // namespace trainer
