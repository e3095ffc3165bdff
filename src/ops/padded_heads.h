// Copies between packed tokens and the layout that batched products of a group of samples take.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"

namespace trainer {

// Takes x [tokens, heads * head_dim]. Returns [samples * heads, at.length, head_dim] in the type of products,
// 0 where no token is.
at::Tensor padded_heads(const at::Tensor& x, const PaddedRows& at, int64_t samples, int64_t heads);

// The inverse: copies what padded [samples * heads, at.length, head_dim], in any type, has of the tokens into
// `out` [tokens, heads * head_dim]. Other rows of `out` stay.
void put_back(const at::Tensor& out, const at::Tensor& padded, const PaddedRows& at, int64_t heads);

}  // namespace trainer
