#include "weights/weight_products.h"

#include <optional>

#include <ATen/ATen.h>

#include "ops/matmul.h"
#include "weights/fp8_products.h"

namespace trainer {
namespace {

RowsOnDemand rows_of(const Weight& w, const at::Tensor& x, at::ScalarType type) {
  return {w.size(0), w.size(1), [&w, type, to = x.scalar_type()](int64_t first, int64_t count) {
            return w.rows(first, count, type).to(to);
          }};
}

// Bf16 is fp32 with fewer bits, so nothing is rounded: it is widened by panels while it is multiplied.
bool is_narrower(const Weight& w, const at::Tensor& x, at::ScalarType type) {
  return x.is_cpu() && w.scalar_type() == at::kBFloat16 && type == at::kFloat &&
         x.scalar_type() == at::kFloat;
}

}  // namespace

at::Tensor times_transposed(const at::Tensor& x, const Weight& w, at::ScalarType type) {
  if (at::Tensor product = times_codes_transposed(x, w); product.defined()) return product;
  if (!w.is_tensor()) return times_transposed(x, rows_of(w, x, type));
  return times_transposed(x, is_narrower(w, x, type) ? w.tensor() : w.materialize(type));
}

at::Tensor times(const at::Tensor& x, const Weight& w, at::ScalarType type) {
  at::Tensor out;
  times_into(out, x, w, type);
  return out;
}

void times_into(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type) {
  if (w.is_tensor()) return times_into(sum, x, w.materialize(type));
  if (const at::Tensor product = times_codes(x, {w}); product.defined()) {
    sum = sum.defined() ? sum.add_(product) : product;
    return;
  }
  times_into(sum, x, rows_of(w, x, type));
}

void add_times_transposed(std::span<const at::Tensor> sums, const at::Tensor& x,
                          const std::vector<Weight>& weights) {
  std::optional<Fp8Rows> quantised;  // once for all
  for (size_t i = 0; i < sums.size(); i++) {
    const Weight& w = weights[i];
    if (const Fp8Tensor* const fp8 = multiplied_in_fp8(x, w)) {
      if (!quantised) quantised = fp8_rows(x);
      sums[i].add_(fp8_times_transposed(*quantised, *fp8));
    } else {
      sums[i].addmm_(x, w.materialize(x.scalar_type()).t());
    }
  }
}

at::Tensor times_codes_transposed(const at::Tensor& x, const Weight& w) {
  const Fp8Tensor* const fp8 = multiplied_in_fp8(x, w);
  return fp8 != nullptr ? fp8_times_transposed(fp8_rows(x), *fp8) : at::Tensor();
}

at::Tensor times_codes(const at::Tensor& x, const std::vector<Weight>& weights) {
  std::vector<const Fp8Tensor*> codes;
  for (const Weight& w : weights) {
    codes.push_back(multiplied_in_fp8(x, w));
    if (codes.back() == nullptr) return {};
  }
  return fp8_times(x, codes);
}

}  // namespace trainer
