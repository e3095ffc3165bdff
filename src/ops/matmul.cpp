#include "ops/matmul.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "device/target_device.h"
#include "gemm/products.h"
#include "ops/cpu_products.h"

namespace trainer {
namespace {

constexpr int64_t kPanelElements = 4 << 20;  // elements of a weight that are in fp32 at a time

// Returns whether bf16 products are computed in fp32 on this device.
bool multiplies_wide(c10::Device device) { return target_of(device) == c10::kCPU && widens_bf16(); }

int64_t panel_rows(int64_t rows, int64_t columns) {
  return std::clamp<int64_t>(kPanelElements / std::max<int64_t>(columns, 1), 1, std::max<int64_t>(rows, 1));
}

int64_t panel_rows(const RowsOnDemand& w, const at::Tensor& x) {
  return target_of(x.device()) == c10::kCPU ? panel_rows(w.rows, w.columns) : w.rows;
}

// x w^T, and sum += x w, for a weight w [n, k]: `panel` makes its rows, `step` at a time, in x's type.
template <class Panel>
at::Tensor panels_transposed(const at::Tensor& x, int64_t n, int64_t step, const Panel& panel) {
  if (step >= n) return product(x, panel(0, n).t());
  at::Tensor out = at::empty({x.size(0), n}, x.options());
  for (int64_t row = 0; row < n; row += step) {
    const int64_t rows = std::min(step, n - row);
    at::Tensor part = out.narrow(1, row, rows);
    const at::Tensor y = panel(row, rows).t();
    suits_builtin(x, y) ? add_builtin_products({{part, x, y}}) : void(at::mm_out(part, x, y));
  }
  return out;
}

template <class Panel>
void panels_into(at::Tensor& sum, const at::Tensor& x, int64_t n, int64_t step, const Panel& panel) {
  if (step >= n) {
    sum.defined() ? add_product(sum, x, panel(0, n)) : void(sum = product(x, panel(0, n)));
    return;
  }
  bool begun = sum.defined();
  for (int64_t row = 0; row < n; row += step) {
    const int64_t rows = std::min(step, n - row);
    if (begun) {
      add_product(sum, x.narrow(1, row, rows), panel(row, rows));
    } else {
      sum = product(x.narrow(1, row, rows), panel(row, rows));
    }
    begun = true;
  }
}

}  // namespace

bool suits_builtin(const at::Tensor& x, const at::Tensor& y) {
  return multiplies_builtin(x.scalar_type()) && can_multiply(x, y);
}

at::ScalarType product_type(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && multiplies_wide(x.device()) ? at::kFloat : x.scalar_type();
}

at::Tensor for_products(const at::Tensor& x) { return x.to(product_type(x)); }

at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& w) {
  const at::ScalarType type = x.scalar_type();
  if (w.scalar_type() == type || suits_builtin(x, w.t())) return product(x, w.t());
  const int64_t n = w.size(0);
  return panels_transposed(x, n, panel_rows(n, w.size(1)),
                           [&](int64_t first, int64_t rows) { return w.narrow(0, first, rows).to(type); });
}

at::Tensor times(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor out;
  times_into(out, x, w);
  return out;
}

void times_into(at::Tensor& sum, const at::Tensor& x, const at::Tensor& w) {
  const at::ScalarType type = x.scalar_type();
  const bool as_it_is = w.scalar_type() == type || suits_builtin(x, w);
  const int64_t n = w.size(0), step = as_it_is ? n : panel_rows(n, w.size(1));
  panels_into(sum, x, n, step,
              [&](int64_t first, int64_t rows) { return as_it_is ? w : w.narrow(0, first, rows).to(type); });
}

at::Tensor product(const at::Tensor& x, const at::Tensor& y) {
  if (suits_builtin(x, y)) {
    at::Tensor out = at::empty({x.size(0), y.size(1)}, x.options());
    add_builtin_products({{out, x, y}});
    return out;
  }
  return suits_onednn(x, y) ? onednn_product(x, y) : x.mm(y);
}

void add_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale) {
  if (suits_builtin(x, y)) return add_builtin_products({{sum, x, y, scale, /*begun=*/true}});
  at::Tensor to = sum;
  to.addmm_(x, y, 1, scale);
}

at::Tensor product_in_fp32(const at::Tensor& x, const at::Tensor& y) {
  if (x.scalar_type() == at::kFloat) return product(x, y);
  if (suits_builtin(x, y)) {
    at::Tensor out = at::empty({x.size(0), y.size(1)}, x.options().dtype(at::kFloat));
    add_builtin_products({{out, x, y}});
    return out;
  }
  // Only CUDA has this operator; meta has it for plans (meta_kernels.cpp).
  if (target_of(x.device()) == c10::kCUDA) return at::mm(x, y, at::kFloat);
  return x.to(at::kFloat).mm(y.to(at::kFloat));
}

at::Tensor times_transposed(const at::Tensor& x, const RowsOnDemand& w) {
  return panels_transposed(x, w.rows, panel_rows(w, x), w.make);
}

void times_into(at::Tensor& sum, const at::Tensor& x, const RowsOnDemand& w) {
  panels_into(sum, x, w.rows, panel_rows(w, x), w.make);
}

}  // namespace trainer
