#include "weights/weight_products.h"

#include <ATen/ATen.h>

#include "ops/matmul.h"

namespace trainer {
namespace {

RowsOnDemand rows_of(const Weight& w, const at::Tensor& x, at::ScalarType type) {
  return {w.size(0), w.size(1), [&w, type, to = x.scalar_type()](int64_t first, int64_t count) {
            return w.rows(first, count, type).to(to);
          }};
}

}  // namespace

at::Tensor times_transposed(const at::Tensor& x, const Weight& w, at::ScalarType type) {
  return w.is_tensor() ? times_transposed(x, w.materialize(type)) : times_transposed(x, rows_of(w, x, type));
}

at::Tensor times(const at::Tensor& x, const Weight& w, at::ScalarType type) {
  at::Tensor out;
  times_into(out, x, w, type);
  return out;
}

void times_into(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type) {
  if (w.is_tensor()) return times_into(sum, x, w.materialize(type));
  times_into(sum, x, rows_of(w, x, type));
}

}  // namespace trainer
