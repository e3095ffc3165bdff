// The layouts around batched products: attention's inputs are laid out by position, the products take them by
// head.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Takes up to four tensors [batch, heads, rows, head_dim], each with its own rows and any strides. Returns
// them contiguous as [batch * heads, rows, head_dim] in the type of products. On a GPU this is one kernel.
std::vector<at::Tensor> heads_first(const std::vector<at::Tensor>& tensors);

// The inverse: takes contiguous [batch * heads, rows, head_dim] in any type; returns [batch, heads, rows,
// head_dim] in `type`, laid out as [batch, rows, heads, head_dim]. One kernel, too.
std::vector<at::Tensor> heads_last(const std::vector<at::Tensor>& tensors, int64_t batch,
                                   at::ScalarType type);

}  // namespace trainer
