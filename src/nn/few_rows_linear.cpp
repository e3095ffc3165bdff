#include "nn/few_rows_linear.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>

#include "device/target_device.h"
#include "gemm/few_rows.h"
#include "ops/coded_product.h"
#include "ops/matmul.h"
#include "weights/fp8_weight.h"
#include "weights/nf4_weight.h"

namespace trainer {
namespace {

constexpr int64_t kFewRowsOfPrompt = 32;  // from there on packed products are faster (docs/performance.md)

// A weight in NF4 or FP8, which refers to w's source; nullopt if it is in neither.
std::optional<CodedWeight> coded_weight(const Weight& w) {
  if (const auto* const nf4 = dynamic_cast<const Nf4Weight*>(w.source()))
    return CodedWeight{.nf4 = &nf4->tensor()};
  if (const auto* const fp8 = dynamic_cast<const Fp8Weight*>(w.source()))
    return CodedWeight{.fp8 = &fp8->tensor()};
  return std::nullopt;
}

bool takes(const at::Tensor& x, const Weight& w) {
  if (runs_on_gpu(x.device()))
    return can_multiply_codes(x) && coded_weight(w).has_value() && w.device() == x.device();
  if (!w.is_tensor()) return can_multiply_few_rows(x, x.scalar_type());
  const at::Tensor& matrix = w.tensor();
  return matrix.device() == x.device() && matrix.dim() == 2 && matrix.stride(1) == 1 &&
         can_multiply_few_rows(x, matrix.scalar_type());
}

// out [rows, outputs] = x w^T
FewRowsProduct product_with(const at::Tensor& x, const Weight& w) {
  FewRowsProduct product{at::empty({x.size(0), w.size(0)}, x.options()), x, {}};
  if (w.is_tensor()) {
    product.w = w.tensor();
  } else {
    product.panel = [&w, type = x.scalar_type()](int64_t first, int64_t count) {
      return w.rows(first, count, type);
    };
  }
  return product;
}

// few_rows_linear() on a GPU.
std::vector<at::Tensor> coded_linear(const at::Tensor& x, const std::vector<Projection>& projections) {
  std::vector<CodedWeight> weights;
  for (const Projection& p : projections) {
    CodedWeight& w = weights.emplace_back(coded_weight(p.weight).value());
    if (p.bias && !p.a.defined()) w.bias = *p.bias;
  }
  const std::vector<at::Tensor> out = coded_products(x, weights);
  for (size_t i = 0; i < projections.size(); i++) {
    const Projection& p = projections[i];
    if (!p.a.defined()) continue;
    const at::Tensor low = x.mm(p.a.to(x.scalar_type()).t());
    add_product(out[i], low, p.b.to(x.scalar_type()).t(), p.scale);
    if (p.bias) out[i].add_(*p.bias);
  }
  return out;
}

}  // namespace

bool are_few_rows(const std::vector<int64_t>& lengths) {
  return std::ranges::all_of(lengths, [](int64_t length) { return length <= kFewRowsOfPrompt; });
}

bool can_take_few_rows(const at::Tensor& x, const std::vector<Projection>& projections) {
  return std::ranges::all_of(projections,
                             [&](const Projection& p) { return p.dropout == 0.0 && takes(x, p.weight); });
}

std::vector<at::Tensor> few_rows_linear(const at::Tensor& x, const std::vector<Projection>& projections) {
  if (runs_on_gpu(x.device())) return coded_linear(x, projections);
  std::vector<FewRowsProduct> products, adapters;
  for (const Projection& p : projections) products.push_back(product_with(x, p.weight));
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < projections.size(); i++) {
    out.push_back(products[i].out);
    const Projection& p = projections[i];
    if (!p.a.defined()) continue;
    products.push_back(product_with(x, Weight(p.a.to(x.scalar_type()))));
    adapters.push_back(
        {out.back(), products.back().out, p.b.to(x.scalar_type()), {}, p.scale, /*begun=*/true});
  }
  few_rows_products(products);
  if (!adapters.empty()) few_rows_products(adapters);
  for (size_t i = 0; i < projections.size(); i++) {
    if (projections[i].bias) out[i].add_(*projections[i].bias);
  }
  return out;
}

at::Tensor few_rows_product(const at::Tensor& x, const Weight& weight) {
  if (!takes(x, weight)) return {};
  if (runs_on_gpu(x.device())) return coded_products(x, {coded_weight(weight).value()})[0];
  const FewRowsProduct product = product_with(x, weight);
  few_rows_products({product});
  return product.out;
}

}  // namespace trainer
