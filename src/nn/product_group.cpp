#include "nn/product_group.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "ops/matmul.h"
#include "weights/weight_products.h"

namespace trainer {
namespace {

// Others are converted for their product, one at a time.
bool is_plain(const Weight& w, at::ScalarType type) { return w.is_tensor() && w.scalar_type() == type; }

}  // namespace

bool ProductGroup::takes(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale) {
  if (!suits_builtin(x, y)) return false;
  const auto is_operand = [&](const SummedProduct& product) {
    return product.sum.is_alias_of(x) || product.sum.is_alias_of(y);
  };
  if (std::ranges::any_of(waiting_, is_operand)) run();
  const bool begun = sum.defined();
  if (!begun) sum = at::empty({x.size(0), y.size(1)}, x.options());
  waiting_.push_back({sum, x, y, scale, begun});
  return true;
}

void ProductGroup::add(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale) {
  if (takes(sum, x, y, scale)) return;
  run();
  if (sum.defined()) return add_product(sum, x, y, scale);
  sum = product(x, y);
  if (scale != 1.0) sum.mul_(scale);
}

void ProductGroup::add_times(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type) {
  if (is_plain(w, type) && takes(sum, x, w.tensor(), 1.0)) return;
  run();
  times_into(sum, x, w, type);
}

void ProductGroup::add_times_transposed(at::Tensor& sum, const at::Tensor& x, const Weight& w,
                                        at::ScalarType type) {
  if (is_plain(w, type) && takes(sum, x, w.tensor().t(), 1.0)) return;
  run();
  sum = times_transposed(x, w, type);
}

void ProductGroup::run() {
  if (!waiting_.empty()) add_builtin_products(waiting_);
  waiting_.clear();
}

}  // namespace trainer
