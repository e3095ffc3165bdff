#include "trainer/nn/matmul.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/device/target_device.h"

namespace trainer {
namespace {

constexpr int64_t kPanelElements = 4 << 20;  // of a weight, at a time in fp32

bool cpu_multiplies_wide() {
#if defined(__x86_64__)
  // AMD's bf16 dot products run at twice the rate of fp32, Intel's at half that.
  const bool fast =
      __builtin_cpu_supports("amx-bf16") || (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd"));
  return !fast;
#else
  return false;
#endif
}

// Whether bf16 products on this device go through fp32.
bool multiplies_wide(c10::Device device) {
  static const bool cpu_wide = cpu_multiplies_wide();
  return target_of(device) == c10::kCPU && cpu_wide;
}

int64_t panel_rows(const at::Tensor& w) {
  return std::clamp<int64_t>(kPanelElements / std::max<int64_t>(w.size(1), 1), 1,
                             std::max<int64_t>(w.size(0), 1));
}

}  // namespace

at::ScalarType product_type(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && multiplies_wide(x.device()) ? at::kFloat : x.scalar_type();
}

at::Tensor for_products(const at::Tensor& x) { return x.to(product_type(x)); }

at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& w) {
  if (w.scalar_type() == x.scalar_type()) return x.mm(w.t());
  const int64_t step = panel_rows(w);
  if (step >= w.size(0)) return x.mm(w.to(x.scalar_type()).t());
  at::Tensor out = at::empty({x.size(0), w.size(0)}, x.options());
  for (int64_t row = 0; row < w.size(0); row += step) {
    const int64_t rows = std::min(step, w.size(0) - row);
    at::Tensor panel = out.narrow(1, row, rows);
    at::mm_out(panel, x, w.narrow(0, row, rows).to(x.scalar_type()).t());
  }
  return out;
}

at::Tensor times(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor out;
  times_into(out, x, w);
  return out;
}

void times_into(at::Tensor& sum, const at::Tensor& x, const at::Tensor& w) {
  const int64_t step = w.scalar_type() == x.scalar_type() ? w.size(0) : panel_rows(w);
  bool begun = sum.defined();
  for (int64_t row = 0; row < w.size(0); row += step) {
    const int64_t rows = std::min(step, w.size(0) - row);
    const at::Tensor panel = w.narrow(0, row, rows).to(x.scalar_type());
    if (begun) {
      sum.addmm_(x.narrow(1, row, rows), panel);
    } else {
      sum = x.narrow(1, row, rows).mm(panel);
    }
    begun = true;
  }
}

}  // namespace trainer
