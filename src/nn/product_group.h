// Products that do not depend on each other, computed together where that saves work: this program's own
// products (gemm/products.h) prepare an operand once that several of them have. Others are computed one
// by one.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

#include "gemm/products.h"

namespace trainer {

class ProductGroup {
 public:
  // Each of these is sum += scale * x y, or makes it the sum if that is undefined. The matrices are of the
  // type of products (ops/matmul.h), a weight's values are rounded to `type`. Sums are complete after run(),
  // at the latest; a product of one that is not waits for it. A defined sum that is passed is no operand of a
  // product that waits.
  void add(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale = 1.0);
  void add_times(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type);  // x w
  // sum = x w^T, for an undefined sum
  void add_times_transposed(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type);

  void run();

 private:
  // Whether the product could be taken.
  bool takes(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale);

  std::vector<SummedProduct> waiting_;
};

}  // namespace trainer
