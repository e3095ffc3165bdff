// RMSNorm on a GPU: rms_norm.cu, or LibTorch's operators.
#include <algorithm>

#include <ATen/ATen.h>

#include "ops/kernels.h"
#include "ops/rms_norm.h"

namespace trainer {

using TensorPair = std::tuple<at::Tensor, at::Tensor>;

TensorPair rms_norm_composite(const at::Tensor& x, const at::Tensor& weight, double epsilon, bool plus_one) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = wide.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();  // [..., 1]
  if (plus_one) return {(wide * rstd).mul_(weight.to(at::kFloat) + 1).to(x.scalar_type()), rstd.view({-1})};
  return {(wide * rstd).to(x.scalar_type()).mul_(weight), rstd.view({-1})};
}

TensorPair rms_norm_backward_composite(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& rstd, bool needs_x, bool needs_weight,
                                       bool plus_one) {
  std::vector<int64_t> one_a_row = x.sizes().vec();
  one_a_row.back() = 1;
  const at::Tensor r = rstd.view(one_a_row), normalised = x.to(at::kFloat) * r;
  at::Tensor gx, gw;
  if (needs_weight) {
    const at::Tensor met = plus_one ? normalised : normalised.to(x.scalar_type());
    const at::Tensor product = grad.to(at::kFloat) * met;
    gw = product.reshape({-1, x.size(-1)}).sum(0).to(weight.scalar_type());
  }
  if (needs_x) {
    const at::Tensor g = grad.to(at::kFloat) * (plus_one ? weight.to(at::kFloat) + 1 : weight);
    const at::Tensor along = (g * normalised).mean(-1, /*keepdim=*/true);
    gx = g.addcmul(normalised, along, -1).mul_(r).to(x.scalar_type());
  }
  return {gx, gw};
}

TensorPair rms_norm_gpu(const at::Tensor& input, const at::Tensor& weight, double epsilon, bool plus_one) {
  const at::Tensor x = input.contiguous(), w = weight.contiguous();
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  const int64_t width = width_for(cols, {x, w});
  const Kernels* kernels = fits_int(rows) ? kernels_for(x, kernel_files::rms_norm, width) : nullptr;
  if (kernels == nullptr) return rms_norm_composite(input, weight, epsilon, plus_one);
  at::Tensor y = at::empty_like(x), rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  kernels->start("norm_forward", grid_of_rows(rows, cols, width), elements(x, x), elements(w, x),
                 y.mutable_data_ptr(), rstd.mutable_data_ptr(), static_cast<int>(cols),
                 static_cast<float>(epsilon), static_cast<int>(plus_one));
  return {y, rstd};
}

TensorPair rms_norm_backward_gpu(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                                 const at::Tensor& rstd, bool needs_x, bool needs_weight, bool plus_one) {
  const at::Tensor g = grad.contiguous(), x = input.contiguous(), w = weight.contiguous();
  const int64_t cols = x.size(-1), rows = rstd.numel();
  const int64_t width = width_for(cols, {g, x, w});
  const Kernels* kernels = fits_int(rows) ? kernels_for(x, kernel_files::rms_norm, width) : nullptr;
  if (kernels == nullptr) {
    return rms_norm_backward_composite(grad, input, weight, rstd, needs_x, needs_weight, plus_one);
  }
  at::Tensor gx, gw;
  if (needs_x) {
    gx = at::empty_like(x);
    kernels->start("norm_backward", grid_of_rows(rows, cols, width), elements(g, x), elements(x, x),
                   elements(w, x), elements(rstd, x, at::kFloat), gx.mutable_data_ptr(),
                   static_cast<int>(cols), static_cast<int>(plus_one));
  }
  if (needs_weight) {
    const int64_t step = std::max<int64_t>(16, (rows + 63) / 64), blocks = (rows + step - 1) / step;
    const at::Tensor sums = at::empty({blocks, cols}, rstd.options());
    constexpr int64_t threads = 128;
    const KernelGrid grid{(cols / width + threads - 1) / threads, blocks, threads};
    kernels->start("norm_backward_weight", grid, elements(g, x), elements(x, x),
                   elements(rstd, x, at::kFloat), sums.mutable_data_ptr(), rows, static_cast<int>(cols), step,
                   static_cast<int>(plus_one));
    gw = sums.sum(0).to(weight.scalar_type());
  }
  return {gx, gw};
}

}  // namespace trainer
