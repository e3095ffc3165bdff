// Linear layers on the few rows of a generation's step: on the CPU by gemm/few_rows.h; on a GPU those whose
// weights are in NF4 or FP8, by ops/coded_product.h.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/linear_group.h"

namespace trainer {

// Returns whether prompts of these lengths are few rows: each is judged alone, so that what it is multiplied
// with does not depend on the others of its batch.
bool are_few_rows(const std::vector<int64_t>& lengths);

// Returns whether few_rows_linear() takes x [rows, in_features] and these layers.
bool can_take_few_rows(const at::Tensor& x, const std::vector<Projection>& projections);

// As linear_group(), without gradients and dropout. On the CPU a weight that is not kept as a matrix is made
// by panels, which each thread multiplies while they are in its cache.
std::vector<at::Tensor> few_rows_linear(const at::Tensor& x, const std::vector<Projection>& projections);

// Returns x w^T for such an x and a weight; undefined if it is not taken.
at::Tensor few_rows_product(const at::Tensor& x, const Weight& weight);

}  // namespace trainer
