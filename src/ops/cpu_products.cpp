#include "ops/cpu_products.h"

#include <algorithm>
#include <atomic>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include "gemm/products.h"

namespace trainer {
namespace {

std::atomic<CpuProducts> wanted_products{CpuProducts::automatic};

CpuProducts fastest_here() {
#if defined(__x86_64__)
  // Measured on Zen 3, Zen 4 and an Intel Xeon of family 6, model 207 (docs/performance.md). Where Intel's
  // system does not allow AMX, LibTorch's libraries do not use it either.
  if (__builtin_cpu_is("amd")) return CpuProducts::builtin;
  return builtin_types().amx ? CpuProducts::by_type : CpuProducts::mkl;
#else
  return CpuProducts::by_type;
#endif
}

// Smaller products are as fast with MKL: oneDNN has more to do before each.
constexpr int64_t kSmallestSide = 192;

using LinearSchema = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                std::string_view, c10::List<std::optional<at::Scalar>>,
                                std::optional<std::string_view>);

// A linear layer with a function behind it, of LibTorch's compiler (ATen/native/mkldnn/Linear.cpp).
const c10::TypedOperatorHandle<LinearSchema>* linear_operator() {
  static const auto found = []() -> std::optional<c10::TypedOperatorHandle<LinearSchema>> {
    const auto any = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    return any ? std::optional(any->typed<LinearSchema>()) : std::nullopt;
  }();
  return found ? &*found : nullptr;
}

bool is_plain_fp32(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided;
}

}  // namespace

void set_cpu_products(CpuProducts wanted) { wanted_products = wanted; }

CpuProducts cpu_products() {
  static const CpuProducts fastest = fastest_here();
  const CpuProducts wanted = wanted_products, chosen = wanted == CpuProducts::automatic ? fastest : wanted;
  return chosen == CpuProducts::builtin && !builtin_types().fp32 ? CpuProducts::mkl : chosen;
}

bool multiplies_builtin(at::ScalarType type) {
  switch (cpu_products()) {
    case CpuProducts::builtin:
      return type == at::kBFloat16 ? builtin_types().bf16 : type == at::kFloat;
    case CpuProducts::by_type:
      return type == at::kBFloat16 && builtin_types().amx;
    default:
      return false;
  }
}

bool widens_bf16() {
  const CpuProducts products = cpu_products();
  return products == CpuProducts::mkl || (products == CpuProducts::builtin && !builtin_types().bf16);
}

std::string describe_cpu_products() {
  switch (cpu_products()) {
    case CpuProducts::mkl:
      return "MKL fp32";
    case CpuProducts::builtin:
      return builtin_types().bf16 ? "built-in fp32 and bf16" : "built-in fp32";
    case CpuProducts::onednn:
      return "oneDNN fp32 and bf16";
    default:
      return builtin_types().amx ? "MKL fp32, built-in bf16" : "MKL fp32, oneDNN bf16";
  }
}

bool suits_onednn(const at::Tensor& x, const at::Tensor& y) {
  static const bool there = at::globalContext().userEnabledMkldnn() && linear_operator() != nullptr;
  const bool suits = there && cpu_products() == CpuProducts::onednn;
  const bool recorded = at::GradMode::is_enabled() && (x.requires_grad() || y.requires_grad());
  return suits && !recorded && is_plain_fp32(x) && is_plain_fp32(y) && x.is_contiguous() &&
         (y.is_contiguous() || y.t().is_contiguous()) &&
         std::min({x.size(0), x.size(1), y.size(1)}) >= kSmallestSide;
}

at::Tensor onednn_product(const at::Tensor& x, const at::Tensor& y) {
  const c10::List<std::optional<at::Scalar>> no_scalars;
  return linear_operator()->call(x, y.t(), std::nullopt, "none", no_scalars, "");
}

}  // namespace trainer
