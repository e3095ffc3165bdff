#include "ops/add_norm.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "device/op.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

using TensorTriple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

TensorTriple add_norm_gpu(const at::Tensor& x_, const at::Tensor& y_, const at::Tensor& weight,
                          const PartDropout& dropped, double epsilon, bool plus_one) {
  const std::optional<at::Tensor>& row_keys = dropped.row_keys;
  const at::Tensor x = x_.contiguous(), y = y_.contiguous(), w = weight.contiguous();
  const at::Tensor keys = row_keys ? row_keys->contiguous() : at::Tensor();
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(y.sizes() == x.sizes() && (!row_keys || keys.numel() == rows), "add_norm: ", x.sizes(), " and ",
              y.sizes());
  const int64_t width = width_for(cols, {x, y, w});
  check_fits(rows, "add_norm");
  const Kernels& kernels = kernels_for(x, "add_norm", width);
  at::Tensor h = at::empty_like(x), n = at::empty_like(x);
  at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  kernels.start("add_norm_forward", grid_of_rows(rows, cols, width), elements(x, x), elements(y, x),
                elements(w, x), elements(keys, x, at::kLong), h.mutable_data_ptr(), n.mutable_data_ptr(),
                rstd.mutable_data_ptr(), static_cast<int>(cols), static_cast<float>(epsilon),
                static_cast<int>(plus_one), KernelMask(dropped.key, dropped.p));
  return {h, n, rstd};
}

std::tuple<at::Tensor, at::Tensor> add_norm_backward_gpu(const at::Tensor& grad,
                                                         const std::optional<at::Tensor>& grad_h,
                                                         const at::Tensor& h, const at::Tensor& weight,
                                                         const at::Tensor& rstd, const PartDropout& dropped,
                                                         bool plus_one) {
  const std::optional<at::Tensor>& row_keys = dropped.row_keys;
  const at::Tensor g = grad.contiguous(), w = weight.contiguous();
  const at::Tensor other = grad_h ? grad_h->contiguous() : at::Tensor();
  const at::Tensor keys = row_keys ? row_keys->contiguous() : at::Tensor();
  const int64_t cols = h.size(-1), rows = rstd.numel();
  const int64_t width = width_for(cols, {g, h, w, other.defined() ? other : g});
  const Kernels& kernels = kernels_for(h, "add_norm", width);
  at::Tensor gx = at::empty_like(h), gy;
  if (row_keys) gy = at::empty_like(h);
  kernels.start("add_norm_backward", grid_of_rows(rows, cols, width), elements(g, h), elements(other, h),
                elements(h, h), elements(w, h), elements(rstd, h, at::kFloat), elements(keys, h, at::kLong),
                gx.mutable_data_ptr(), row_keys ? gy.mutable_data_ptr() : nullptr, static_cast<int>(cols),
                static_cast<int>(plus_one), KernelMask(dropped.key, dropped.p));
  return {gx, gy};
}

constexpr Op kAddNorm{"trainer::add_norm", add_norm_cpu, add_norm_gpu};
constexpr Op kAddNormBackward{"trainer::add_norm_backward", add_norm_backward_cpu, add_norm_backward_gpu};

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_norm(const at::Tensor& x, const at::Tensor& y,
                                                        const at::Tensor& weight, const PartDropout& dropped,
                                                        double epsilon, bool plus_one) {
  return kAddNorm(x, y, weight, dropped, epsilon, plus_one);
}

std::tuple<at::Tensor, at::Tensor> add_norm_backward(const at::Tensor& grad,
                                                     const std::optional<at::Tensor>& grad_h,
                                                     const at::Tensor& h, const at::Tensor& weight,
                                                     const at::Tensor& rstd, const PartDropout& dropped,
                                                     bool plus_one) {
  return kAddNormBackward(grad, grad_h, h, weight, rstd, dropped, plus_one);
}

}  // namespace trainer
