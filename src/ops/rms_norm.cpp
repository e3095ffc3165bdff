#include "ops/rms_norm.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "device/op.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

std::tuple<at::Tensor, at::Tensor> rms_norm_gpu(const at::Tensor& input, const at::Tensor& weight,
                                                double epsilon, bool plus_one) {
  const at::Tensor x = input.contiguous(), w = weight.contiguous();
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  const int64_t width = width_for(cols, {x, w});
  check_fits(rows, "rms_norm");
  const Kernels& kernels = kernels_for(x, "rms_norm", width);
  at::Tensor y = at::empty_like(x), rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  kernels.start("norm_forward", grid_of_rows(rows, cols, width), elements(x, x), elements(w, x),
                y.mutable_data_ptr(), rstd.mutable_data_ptr(), static_cast<int>(cols),
                static_cast<float>(epsilon), static_cast<int>(plus_one));
  return {y, rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward_gpu(const at::Tensor& grad, const at::Tensor& input,
                                                         const at::Tensor& weight, const at::Tensor& rstd,
                                                         bool needs_x, bool needs_weight, bool plus_one) {
  const at::Tensor g = grad.contiguous(), x = input.contiguous(), w = weight.contiguous();
  const int64_t cols = x.size(-1), rows = rstd.numel();
  const int64_t width = width_for(cols, {g, x, w});
  const Kernels& kernels = kernels_for(x, "rms_norm", width);
  at::Tensor gx, gw;
  if (needs_x) {
    gx = at::empty_like(x);
    kernels.start("norm_backward", grid_of_rows(rows, cols, width), elements(g, x), elements(x, x),
                  elements(w, x), elements(rstd, x, at::kFloat), gx.mutable_data_ptr(),
                  static_cast<int>(cols), static_cast<int>(plus_one));
  }
  if (needs_weight) {
    const int64_t step = std::max<int64_t>(16, (rows + 63) / 64), blocks = (rows + step - 1) / step;
    const at::Tensor sums = at::empty({blocks, cols}, rstd.options());
    constexpr int64_t threads = 128;
    const KernelGrid grid{(cols / width + threads - 1) / threads, blocks, threads};
    kernels.start("norm_backward_weight", grid, elements(g, x), elements(x, x), elements(rstd, x, at::kFloat),
                  sums.mutable_data_ptr(), rows, static_cast<int>(cols), step, static_cast<int>(plus_one));
    gw = sums.sum(0).to(weight.scalar_type());
  }
  return {gx, gw};
}

constexpr Op kRmsNorm{"trainer::rms_norm", rms_norm_cpu, rms_norm_gpu};
constexpr Op kRmsNormBackward{"trainer::rms_norm_backward", rms_norm_backward_cpu, rms_norm_backward_gpu};

}  // namespace

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                                            bool plus_one) {
  return kRmsNorm(x, weight, epsilon, plus_one);
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const at::Tensor& weight, const at::Tensor& rstd,
                                                     bool needs_x, bool needs_weight, bool plus_one) {
  return kRmsNormBackward(grad, x, weight, rstd, needs_x, needs_weight, plus_one);
}

}  // namespace trainer
