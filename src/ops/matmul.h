// Products of activations with weights, in the type that the machine multiplies fastest.
//
// Some processors have no fast bf16: Intel before AMX runs bf16 products at half the speed of fp32 ones, and
// machines without AVX512_BF16 are far slower. There, bf16 operands are widened to fp32 one panel at a time,
// multiplied, and the result is rounded once. A bf16 weight is never in memory as a whole in fp32.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns the type in which products with x are computed: fp32 if bf16 products are computed in fp32 on this
// machine, otherwise x's type.
at::ScalarType product_type(const at::Tensor& x);
// Returns x in that type; x itself if it already has it.
at::Tensor for_products(const at::Tensor& x);

// Returns x w^T, [m, n] in x's type, for x [m, k] from for_products() and w [n, k] in any type.
at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& w);

// Returns x w, [m, n] in x's type, for x [m, k] from for_products() and w [k, n] in any type.
at::Tensor times(const at::Tensor& x, const at::Tensor& w);
// Adds x w to `sum`; an undefined sum becomes x w.
void times_into(at::Tensor& sum, const at::Tensor& x, const at::Tensor& w);

// Returns whether x y, for x [m, k] and y [k, n], is a product of this program's own kernels
// (gemm/products.h).
bool suits_builtin(const at::Tensor& x, const at::Tensor& y);

// Returns x y for two matrices of the type of products; y may be bf16 where it suits_builtin().
at::Tensor product(const at::Tensor& x, const at::Tensor& y);
// sum += scale * x y, for three matrices of the type of products.
void add_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale = 1.0);

// Returns x y in fp32 for two matrices of one type. A GPU does not round the sums to that type in between.
at::Tensor product_in_fp32(const at::Tensor& x, const at::Tensor& y);

// A matrix [rows, columns] whose rows are made when they are multiplied, and then dropped. `make` returns
// [count, columns] from row `first` on, in the type of x.
struct RowsOnDemand {
  int64_t rows, columns;
  std::function<at::Tensor(int64_t first, int64_t count)> make;
};

// The same for such a matrix. A CPU makes it one panel at a time, a GPU as a whole, because few large
// products are faster there.
at::Tensor times_transposed(const at::Tensor& x, const RowsOnDemand& w);
void times_into(at::Tensor& sum, const at::Tensor& x, const RowsOnDemand& w);

}  // namespace trainer
