// A group of linear layers with adapters on a GPU.
#pragma once

#include <vector>

#include "nn/linear_group.h"

namespace trainer {

// Returns whether packed_linear_group() takes this group: GPU kernels, frozen weights in the type of the
// products, an adapter on at least one layer, all with the same scale.
bool can_pack(const at::Tensor& x, const std::vector<Projection>& projections, at::ScalarType type);

// Returns matrices that lie next to each other in one tensor, along `dim`, as one matrix without a copy;
// undefined if they do not.
at::Tensor joined(const std::vector<at::Tensor>& matrices, int64_t dim);

// linear_group() with fewer products and launches: the adapters' matrices are packed
// (src/ops/packed_adapters.h), so that all of them together take two products (one for each A if there is
// dropout). The outputs are columns of one matrix [rows, all outputs].
// Weights that lie below each other are multiplied together, and so are gradients of the
// outputs that are columns of one matrix. The gradients of A and B are in fp32
// and never rounded to the type of the products. Packed matrices that are small beside x are kept for
// backward; others are packed again there. `packs`: shared by the passes of an update; null: none.
std::vector<at::Tensor> packed_linear_group(const LayerInput& x, const at::Tensor& row_keys,
                                            const std::vector<Projection>& projections,
                                            const std::shared_ptr<AdapterPacks>& packs = nullptr);

}  // namespace trainer
