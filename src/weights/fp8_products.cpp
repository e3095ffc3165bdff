#include "weights/fp8_products.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/strings.h"

#include "device/cuda_driver.h"
#include "device/op.h"
#include "device/target_device.h"
#include "memory/asked_once.h"
#include "weights/fp8_weight.h"

namespace trainer {
namespace {

constexpr int64_t kMultiple = 16;  // of cuBLASLt and CUTLASS

bool in_tests = false;

bool products_are(std::string_view wanted) {
  static const std::string said = [] {
    const char* const value = std::getenv("TRAINER_FP8_PRODUCTS");
    return std::string(value == nullptr ? "" : value);
  }();
  return said == wanted;
}

bool has_fp8_units(c10::Device device) {
  const auto& known = cuda_driver().devices;
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  if (index >= known.size()) return false;
  return known[index].major > 8 || (known[index].major == 8 && known[index].minor == 9);
}

at::Tensor as_fp8(const at::Tensor& codes) { return codes.view(at::kFloat8_e4m3fn); }

// fp32 [rows]: of each row of the weight.
at::Tensor scales_of_rows(const Fp8Tensor& w) { return w.scales.view({-1}).expand({w.rows()}); }

at::Tensor product_cpu(const Fp8Rows& x, const Fp8Rows& y) {
  const at::Tensor sums = as_fp8(x.codes).to(at::kFloat).mm(as_fp8(y.codes).to(at::kFloat).t());
  return sums.mul_(x.scales.unsqueeze(1)).mul_(y.scales).to(at::kBFloat16);
}

// fp32 sums of a GPU's units have some bits less than on the CPU: others would be slower, and e4m3 rounds far
// more. _scaled_mm has no form for meta.
at::Tensor product_gpu(const Fp8Rows& x, const Fp8Rows& y) {
  const int64_t rows = x.codes.size(0), columns = y.codes.size(0);
  if (x.codes.is_meta()) return at::empty({rows, columns}, x.codes.options().dtype(at::kBFloat16));
  if (x.codes.is_cpu()) return product_cpu(x, y);  // an emulated GPU
  return at::_scaled_mm(as_fp8(x.codes), as_fp8(y.codes).t(), x.scales.view({rows, 1}),
                        y.scales.view({1, columns}), /*bias=*/{}, /*scale_result=*/{}, at::kBFloat16,
                        /*use_fast_accum=*/true);
}

// x y^T of two matrices in FP8.
constexpr Op kProduct{"trainer::fp8_product", product_cpu, product_gpu};

// Returns by how much a product on this GPU differs from the same codes in fp64; "" if by no more than bf16
// explains.
std::string fault_of_products(c10::Device gpu) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(31);
  const auto factor = [&](int64_t rows) {
    const at::Tensor sizes = at::logspace(-2, 2, rows).unsqueeze(1);
    return fp8_rows((at::randn({rows, 512}, generator, at::kFloat) * sizes).to(gpu, at::kBFloat16));
  };
  const Fp8Rows x = factor(80), y = factor(256);
  const auto exact = [](const Fp8Rows& rows) {
    return as_fp8(rows.codes).to(at::kFloat).to(at::kDouble) * rows.scales.to(at::kDouble).unsqueeze(1);
  };
  const at::Tensor expected = exact(x).mm(exact(y).t());
  const double off = (kProduct(x, y).to(at::kDouble) - expected).norm().div(expected.norm()).item<double>();
  return off <= 1e-2 ? "" : concat("the result differs by ", off);
}

bool multiplies_fp8(c10::Device device) {
  if (in_tests && !device.is_cuda()) return true;
  if (device.is_cpu()) return products_are("on");
  if (products_are("off") || target_of(device) != c10::kCUDA || !has_fp8_units(device)) return false;
  static AskedOnce gpus("products in FP8", "device", "Widening weights to bf16");
  return device.is_meta() || gpus.works({device.index()}, [&] { return fault_of_products(device); });
}

}  // namespace

const Fp8Tensor* multiplied_in_fp8(const at::Tensor& x, const Weight& w) {
  if (x.scalar_type() != at::kBFloat16) return nullptr;
  const auto* const fp8 = dynamic_cast<const Fp8Weight*>(w.source());
  if (fp8 == nullptr || fp8->tensor().block_columns() != fp8->tensor().columns()) return nullptr;
  const Fp8Tensor& tensor = fp8->tensor();
  const bool by_row = tensor.block_rows() == 1 || tensor.block_rows() == tensor.rows();
  const bool fits = tensor.rows() % kMultiple == 0 && tensor.columns() % kMultiple == 0;
  return by_row && fits && multiplies_fp8(x.device()) ? &tensor : nullptr;
}

at::Tensor fp8_times_transposed(const Fp8Rows& x, const Fp8Tensor& w) {
  return kProduct(x, {w.codes.view({w.rows(), w.columns()}), scales_of_rows(w).contiguous()});
}

at::Tensor fp8_times(const at::Tensor& x, const std::vector<const Fp8Tensor*>& weights) {
  std::vector<at::Tensor> codes, scales;
  for (const Fp8Tensor* const w : weights) {
    codes.push_back(w->codes);
    scales.push_back(scales_of_rows(*w));
  }
  const int64_t columns = weights.front()->columns();
  const Fp8Rows scaled = fp8_rows(x, scales.size() == 1 ? scales[0].contiguous() : at::cat(scales));
  return kProduct(scaled, {transposed_codes(codes, columns), at::ones({columns}, scales[0].options())});
}

Fp8ProductsInTests::Fp8ProductsInTests() { in_tests = true; }
Fp8ProductsInTests::~Fp8ProductsInTests() { in_tests = false; }

}  // namespace trainer
