#include "weights/fp8_products.h"

#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/strings.h"

#include "base/switches.h"
#include "device/known_gpu.h"
#include "device/op.h"
#include "device/target_device.h"
#include "memory/asked_once.h"
#include "weights/fp8_weight.h"

namespace trainer {
namespace {

constexpr int64_t kMultiple = 16;  // of cuBLASLt and CUTLASS

bool in_tests = false;

bool products_are(std::string_view value) { return switch_is(Switch::fp8_products, value); }

at::Tensor as_fp8(const at::Tensor& codes) { return codes.view(at::kFloat8_e4m3fn); }

// fp32 [rows]: of each row of the weight.
at::Tensor scales_of_rows(const Fp8Tensor& w) { return w.scales.view({-1}).expand({w.rows()}); }

// A GPU's sums in fp32 may lose some bits, which takes less time; e4m3 rounds far more.
enum class Sums { fast, exact };

at::Tensor product_cpu(const Fp8Rows& x, const Fp8Rows& y, Sums) {
  const at::Tensor sums = as_fp8(x.codes).to(at::kFloat).mm(as_fp8(y.codes).to(at::kFloat).t());
  return sums.mul_(x.scales.unsqueeze(1)).mul_(y.scales).to(at::kBFloat16);
}

// _scaled_mm has no form for meta.
at::Tensor product_gpu(const Fp8Rows& x, const Fp8Rows& y, Sums sums) {
  const int64_t rows = x.codes.size(0), columns = y.codes.size(0);
  if (x.codes.is_meta()) return at::empty({rows, columns}, x.codes.options().dtype(at::kBFloat16));
  if (x.codes.is_cpu()) return product_cpu(x, y, sums);  // an emulated GPU
  return at::_scaled_mm(as_fp8(x.codes), as_fp8(y.codes).t(), x.scales.view({rows, 1}),
                        y.scales.view({1, columns}), /*bias=*/{}, /*scale_result=*/{}, at::kBFloat16,
                        /*use_fast_accum=*/sums == Sums::fast);
}

// x y^T of two matrices in FP8.
constexpr Op kProduct{"trainer::fp8_product", product_cpu, product_gpu};

// Returns what is wrong with products of this size, "" if nothing: a row or column that differs from the same
// codes in fp64 by more than bf16 and fast sums explain, or a result that changes when it is computed again.
std::string fault_of_products(c10::Device gpu, int64_t rows, int64_t columns) {
  constexpr int64_t inner = 512;
  constexpr double most = 1e-2;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(31);
  const auto factor = [&](int64_t count) {
    const at::Tensor sizes = at::logspace(-2, 2, count).unsqueeze(1);
    return fp8_rows((at::randn({count, inner}, generator, at::kFloat) * sizes).to(gpu, at::kBFloat16));
  };
  const Fp8Rows x = factor(rows), y = factor(columns);
  const auto codes = [](const Fp8Rows& of) { return as_fp8(of.codes).to(at::kFloat).to(at::kDouble); };
  const at::Tensor expected = codes(x).mm(codes(y).t());
  const at::Tensor scales = x.scales.to(at::kDouble).unsqueeze(1) * y.scales.to(at::kDouble);
  for (const Sums sums : {Sums::fast, Sums::exact}) {
    const at::Tensor found = kProduct(x, y, sums);
    const at::Tensor off = found.to(at::kDouble) / scales - expected;
    for (const int64_t dim : {0, 1}) {
      const double by = (off.norm(2, dim) / expected.norm(2, dim)).max().item<double>();
      if (!(by <= most)) return concat("a result differs by ", by);
    }
    if (!kProduct(x, y, sums).equal(found)) return "a result changes from call to call";
  }
  return "";
}

// Of sizes for which libraries have kernels of their own.
std::string fault_of_products(c10::Device gpu) {
  const at::NoGradGuard no_grad;
  std::string why;
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{8, 256}, {80, 256}, {2048, 4096}, {4096, 512}})
    if (why.empty()) why = fault_of_products(gpu, rows, columns);
  return why;
}

}  // namespace

bool multiplies_fp8(c10::Device device) {
  if (in_tests && !device.is_cuda()) return true;
  if (device.is_cpu()) return products_are("on");
  const CudaDevice* const gpu = known_gpu(device);
  if (products_are("off") || target_of(device) != c10::kCUDA || gpu == nullptr || !has_fp8_units(*gpu))
    return false;
  static AskedOnce gpus("products in FP8", "device", "Widening weights to bf16");
  return device.is_meta() || gpus.works({device.index()}, [&] { return fault_of_products(device); });
}

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
  return kProduct(x, {w.codes.view({w.rows(), w.columns()}), scales_of_rows(w).contiguous()}, Sums::fast);
}

at::Tensor fp8_times(const at::Tensor& x, const std::vector<const Fp8Tensor*>& weights) {
  std::vector<at::Tensor> codes, scales;
  for (const Fp8Tensor* const w : weights) {
    codes.push_back(w->codes);
    scales.push_back(scales_of_rows(*w));
  }
  const int64_t columns = weights.front()->columns();
  const Fp8Rows scaled = fp8_rows(x, scales.size() == 1 ? scales[0].contiguous() : at::cat(scales));
  return kProduct(scaled, {transposed_codes(codes, columns), at::ones({columns}, scales[0].options())},
                  Sums::exact);
}

Fp8ProductsInTests::Fp8ProductsInTests() { in_tests = true; }
Fp8ProductsInTests::~Fp8ProductsInTests() { in_tests = false; }

}  // namespace trainer
