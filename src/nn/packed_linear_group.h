// A group of linear layers with adapters on a GPU.
#pragma once

#include <vector>

#include "nn/linear_group.h"

namespace trainer {

// Returns whether packed_linear_group() takes this group: GPU kernels, frozen weights in the type of the
// products, an adapter on every layer, all with the same scale.
bool can_pack(const at::Tensor& x, const std::vector<Projection>& projections, at::ScalarType type);

// linear_group() with fewer products and launches: the adapters' matrices are packed
// (src/ops/packed_adapters.h), so that all of them together take two products (one for each A if there is
// dropout). The outputs are columns of one matrix [rows, all outputs]. The gradients of A and B are in fp32
// and never rounded to the type of the products.
std::vector<at::Tensor> packed_linear_group(const LayerInput& x, const at::Tensor& row_keys,
                                            const std::vector<Projection>& projections);

}  // namespace trainer
