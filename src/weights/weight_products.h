// Products of activations with a Weight, in whatever form it is kept.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

namespace trainer {

// As the functions of ops/matmul.h, with the weight's values rounded to `type`, the type of the computation.
// A weight that is kept in another type exists in `type` only during the product; one from a WeightSource is
// made one panel at a time.
at::Tensor times_transposed(const at::Tensor& x, const Weight& w, at::ScalarType type);  // x w^T
at::Tensor times(const at::Tensor& x, const Weight& w, at::ScalarType type);             // x w
void times_into(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type);
// Each sum += x w^T with its weight, for sums that are there, on a GPU.
void add_times_transposed(std::span<const at::Tensor> sums, const at::Tensor& x,
                          const std::vector<Weight>& weights);
// By a product of codes (weights/fp8_products.h); undefined where weights are not multiplied so: x w^T, and
// x [w; w'; ...] for x [n, all rows of the weights].
at::Tensor times_codes_transposed(const at::Tensor& x, const Weight& w);
at::Tensor times_codes(const at::Tensor& x, const std::vector<Weight>& weights);

}  // namespace trainer
