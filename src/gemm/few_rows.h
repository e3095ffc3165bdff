// Products of few rows with weights, for answers that grow by a token at a time: x w^T for x [m, k] and w [n,
// k], both with contiguous rows, as they lie in memory or in the model's file. Reading w takes longer than
// the arithmetic, so nothing is packed, and w is read once.
//
// A number of the result has the same bits whatever the other rows are, however many they are, and however
// many threads there are. So an answer does not depend on the others of its batch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Rows first, first + 1, ... of a weight that is not kept as a plain matrix: [count, k], contiguous. Called
// from several threads.
using FewRowsPanel = std::function<at::Tensor(int64_t first, int64_t count)>;

// out = scale x w^T, or out += that if `begun`; out [m, n] is in x's type and rounded once. x is fp32 and w
// fp32 or bf16, or both are bf16; sums are fp32.
struct FewRowsProduct {
  at::Tensor out, x;
  at::Tensor w;  // or undefined, and its rows come from `panel`
  FewRowsPanel panel{};
  double scale = 1.0;
  bool begun = false;
};

// Returns whether few_rows_products() takes x and a weight of this type: on an x86 processor with AVX2.
// Nothing may be recorded for gradients.
bool can_multiply_few_rows(const at::Tensor& x, at::ScalarType weight);

// Computes them all together; no result is an operand of another.
void few_rows_products(const std::vector<FewRowsProduct>& products);

}  // namespace trainer
