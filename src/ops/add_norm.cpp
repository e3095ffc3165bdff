#include "ops/add_norm.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "device/operators.h"
#include "ops/dropout.h"
#include "ops/kernel_mask.h"
#include "ops/kernels.h"
#include "ops/rms_norm.h"

namespace trainer {

using OptionalTensor = std::optional<at::Tensor>;
using TensorPair = std::tuple<at::Tensor, at::Tensor>;
using TensorTriple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

TensorTriple add_norm_composite(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
                                const OptionalTensor& row_keys, int64_t key, double p, double epsilon,
                                bool plus_one) {
  const at::Tensor h =
      row_keys ? dropout_apply(y, *row_keys, static_cast<uint64_t>(key), p).add_(x) : at::add(x, y);
  const auto [n, rstd] = rms_norm(h, weight, epsilon, plus_one);
  return {h, n, rstd};
}

TensorPair add_norm_backward_composite(const at::Tensor& grad, const OptionalTensor& grad_h,
                                       const at::Tensor& h, const at::Tensor& weight, const at::Tensor& rstd,
                                       const OptionalTensor& row_keys, int64_t key, double p, bool plus_one) {
  const at::Tensor gx = std::get<0>(
      rms_norm_backward(grad, h, weight, rstd, /*needs_x=*/true, /*needs_weight=*/false, plus_one));
  if (grad_h) gx.add_(*grad_h);
  return {gx, row_keys ? dropout_apply(gx, *row_keys, static_cast<uint64_t>(key), p) : at::Tensor()};
}

TensorTriple add_norm_gpu(const at::Tensor& x_, const at::Tensor& y_, const at::Tensor& weight,
                          const OptionalTensor& row_keys, int64_t key, double p, double epsilon,
                          bool plus_one) {
  const at::Tensor x = x_.contiguous(), y = y_.contiguous(), w = weight.contiguous();
  const at::Tensor keys = row_keys ? row_keys->contiguous() : at::Tensor();
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(y.sizes() == x.sizes() && (!row_keys || keys.numel() == rows), "add_norm: ", x.sizes(), " and ",
              y.sizes());
  const int64_t width = width_for(cols, {x, y, w});
  const Kernels* kernels = fits_int(rows) ? kernels_for(x, kernel_files::add_norm, width) : nullptr;
  if (kernels == nullptr) return add_norm_composite(x, y, weight, row_keys, key, p, epsilon, plus_one);
  at::Tensor h = at::empty_like(x), n = at::empty_like(x);
  at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  kernels->start("add_norm_forward", grid_of_rows(rows, cols, width), elements(x, x), elements(y, x),
                 elements(w, x), elements(keys, x, at::kLong), h.mutable_data_ptr(), n.mutable_data_ptr(),
                 rstd.mutable_data_ptr(), static_cast<int>(cols), static_cast<float>(epsilon),
                 static_cast<int>(plus_one), KernelMask(key, p));
  return {h, n, rstd};
}

TensorPair add_norm_backward_gpu(const at::Tensor& grad, const OptionalTensor& grad_h, const at::Tensor& h,
                                 const at::Tensor& weight, const at::Tensor& rstd,
                                 const OptionalTensor& row_keys, int64_t key, double p, bool plus_one) {
  const at::Tensor g = grad.contiguous(), w = weight.contiguous();
  const at::Tensor other = grad_h ? grad_h->contiguous() : at::Tensor();
  const at::Tensor keys = row_keys ? row_keys->contiguous() : at::Tensor();
  const int64_t cols = h.size(-1), rows = rstd.numel();
  const int64_t width = width_for(cols, {g, h, w, other.defined() ? other : g});
  const Kernels* kernels = fits_int(rows) ? kernels_for(h, kernel_files::add_norm, width) : nullptr;
  if (kernels == nullptr) {
    return add_norm_backward_composite(g, grad_h, h, weight, rstd, row_keys, key, p, plus_one);
  }
  at::Tensor gx = at::empty_like(h), gy;
  if (row_keys) gy = at::empty_like(h);
  kernels->start("add_norm_backward", grid_of_rows(rows, cols, width), elements(g, h), elements(other, h),
                 elements(h, h), elements(w, h), elements(rstd, h, at::kFloat), elements(keys, h, at::kLong),
                 gx.mutable_data_ptr(), row_keys ? gy.mutable_data_ptr() : nullptr, static_cast<int>(cols),
                 static_cast<int>(plus_one), KernelMask(key, p));
  return {gx, gy};
}

TORCH_LIBRARY_FRAGMENT(trainer, library) {
  library.def(
      "add_norm(Tensor x, Tensor y, Tensor weight, Tensor? row_keys, int key, float p, float epsilon, bool "
      "plus_one) -> (Tensor, Tensor, Tensor)");
  library.def(
      "add_norm_backward(Tensor grad, Tensor? grad_h, Tensor h, Tensor weight, Tensor rstd, Tensor? "
      "row_keys, "
      "int key, float p, bool plus_one) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) {
  library.impl("add_norm", add_norm_host);
  library.impl("add_norm_backward", add_norm_backward_host);
}
TORCH_LIBRARY_IMPL(trainer, Meta, library) {
  library.impl("add_norm", ByTarget<add_norm_host, add_norm_gpu>::call);
  library.impl("add_norm_backward", ByTarget<add_norm_backward_host, add_norm_backward_gpu>::call);
}
TORCH_LIBRARY_IMPL(trainer, CUDA, library) {
  library.impl("add_norm", add_norm_gpu);
  library.impl("add_norm_backward", add_norm_backward_gpu);
}

TensorTriple add_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight,
                      const PartDropout& dropped, double epsilon, bool plus_one) {
  static const Operator<TensorTriple(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     const OptionalTensor&, int64_t, double, double, bool)>
      op("trainer::add_norm");
  return op(x, y, weight, dropped.row_keys, dropped.key, dropped.p, epsilon, plus_one);
}

TensorPair add_norm_backward(const at::Tensor& grad, const OptionalTensor& grad_h, const at::Tensor& h,
                             const at::Tensor& weight, const at::Tensor& rstd, const PartDropout& dropped,
                             bool plus_one) {
  static const Operator<TensorPair(const at::Tensor&, const OptionalTensor&, const at::Tensor&,
                                   const at::Tensor&, const at::Tensor&, const OptionalTensor&, int64_t,
                                   double, bool)>
      op("trainer::add_norm_backward");
  return op(grad, grad_h, h, weight, rstd, dropped.row_keys, dropped.key, dropped.p, plus_one);
}

}  // namespace trainer
