#include "weights/fp8_products.h"

#include <cstdlib>
#include <string_view>

#include <ATen/ATen.h>

#include "device/cuda_driver.h"
#include "weights/fp8_weight.h"

namespace trainer {
namespace {

constexpr int64_t kMultiple = 16;  // of cuBLASLt and CUTLASS
constexpr float kSmallestRow = 1e-12f;

bool wanted() {
  static const bool on = [] {
    const char* const value = std::getenv("TRAINER_FP8_PRODUCTS");
    return value != nullptr && std::string_view(value) == "on";
  }();
  return on;
}

bool has_fp8_units(c10::Device device) {
  const auto& known = cuda_driver().devices;
  const auto index = static_cast<size_t>(device.index());
  if (index >= known.size()) return false;
  return known[index].major > 8 || (known[index].major == 8 && known[index].minor == 9);
}

// fp32 [rows, 1]: of each row of the weight.
at::Tensor scales_of_rows(const Fp8Tensor& w) { return w.scales.view({-1, 1}).expand({w.rows(), 1}); }

at::Tensor codes_of(const Fp8Tensor& w) {
  return w.codes.view(at::kFloat8_e4m3fn).view({w.rows(), w.columns()});
}

// x y^T of two matrices in FP8, in `type`.
at::Tensor multiply(const Fp8Rows& x, const Fp8Rows& y, at::ScalarType type) {
  if (x.codes.is_cuda()) {
    return at::_scaled_mm(x.codes, y.codes.t(), x.scales, y.scales.t().contiguous(), /*bias=*/{},
                          /*scale_result=*/{}, at::kBFloat16)
        .to(type);
  }
  const at::Tensor sums = x.codes.to(at::kFloat).mm(y.codes.to(at::kFloat).t());
  return sums.mul_(x.scales).mul_(y.scales.t()).to(type);
}

}  // namespace

Fp8Rows fp8_rows(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scales = wide.abs().amax(1, /*keepdim=*/true).clamp_min_(kSmallestRow).div_(kLargestFp8);
  return {wide.div(scales).clamp_(-kLargestFp8, kLargestFp8).to(at::kFloat8_e4m3fn), scales};
}

const Fp8Tensor* multiplied_in_fp8(const at::Tensor& x, const Weight& w) {
  if (!x.is_cuda() || !wanted()) return nullptr;
  const auto* const fp8 = dynamic_cast<const Fp8Weight*>(w.source());
  if (fp8 == nullptr || fp8->tensor().block_columns() != fp8->tensor().columns()) return nullptr;
  const Fp8Tensor& tensor = fp8->tensor();
  const bool by_row = tensor.block_rows() == 1 || tensor.block_rows() == tensor.rows();
  const bool fits = tensor.rows() % kMultiple == 0 && tensor.columns() % kMultiple == 0;
  return by_row && fits && has_fp8_units(x.device()) ? &tensor : nullptr;
}

at::Tensor fp8_times_transposed(const at::Tensor& x, const Fp8Tensor& w) {
  return multiply(fp8_rows(x), {codes_of(w), scales_of_rows(w)}, x.scalar_type());
}

at::Tensor fp8_times(const at::Tensor& x, const Fp8Tensor& w) {
  const at::Tensor scaled = x.to(at::kFloat) * scales_of_rows(w).t();
  const at::Tensor ones = at::ones({w.columns(), 1}, w.scales.options());
  return multiply(fp8_rows(scaled), {codes_of(w).t().contiguous(), ones}, x.scalar_type());
}

}  // namespace trainer
