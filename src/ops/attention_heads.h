// The layouts around batched products: attention's inputs are laid out by position, the products take them by
// head.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"

namespace trainer {

// Takes up to four tensors [batch, heads, rows, head_dim], each with its own rows and any strides. Returns
// them contiguous as [batch * heads, rows, head_dim] in the type of products. On a GPU this is one kernel.
std::vector<at::Tensor> heads_first(const std::vector<at::Tensor>& tensors);

// The inverse: takes contiguous [batch * heads, rows, head_dim] in any type; returns [batch, heads, rows,
// head_dim] in `type`, laid out as [batch, rows, heads, head_dim]. One kernel, too.
std::vector<at::Tensor> heads_last(const std::vector<at::Tensor>& tensors, int64_t batch,
                                   at::ScalarType type);

// Returns an uninitialised tensor of x's shape [batch, heads, rows, head_dim], laid out as [batch, rows,
// heads, head_dim].
at::Tensor empty_by_position(const at::Tensor& x);

// Between packed tokens and the layout that batched products of a group of samples take:
//
// Takes x [tokens, heads * head_dim]. Returns [samples * heads, at.length, head_dim] in the type of products,
// 0 where no token is.
at::Tensor padded_heads(const at::Tensor& x, const PaddedRows& at, int64_t samples, int64_t heads);

// The inverse: copies what padded [samples * heads, at.length, head_dim], in any type, has of the tokens into
// `out` [tokens, heads * head_dim]. Other rows of `out` stay.
void put_back(const at::Tensor& out, const at::Tensor& padded, const PaddedRows& at, int64_t heads);

}  // namespace trainer
