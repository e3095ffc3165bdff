#include "ops/onednn_product.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include "ops/cpu_products.h"

namespace trainer {
namespace {

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
