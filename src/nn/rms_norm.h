// The operators behind RmsNorm.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

namespace trainer {

// x [..., size], weight [size] in x's type -> (the same shape, rstd fp32 [rows]): x / rms in fp32, rounded to
// x's type, times the weight, rounded again. plus_one: x / rms * (1 + weight) in fp32, rounded once. A row's
// result depends on nothing but the row.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                                            bool plus_one = false);

// Gradients of x and of the weight; undefined where not needed. In fp32, rounded once. Sums over rows are cut
// by their number, not by that of threads.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const at::Tensor& weight, const at::Tensor& rstd,
                                                     bool needs_x, bool needs_weight, bool plus_one = false);

// What CUDA uses: kernels/rms_norm.cu, and the composite of LibTorch's operators where that does not work.
std::tuple<at::Tensor, at::Tensor> rms_norm_gpu(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                                                bool plus_one = false);
std::tuple<at::Tensor, at::Tensor> rms_norm_backward_gpu(const at::Tensor& grad, const at::Tensor& x,
                                                         const at::Tensor& weight, const at::Tensor& rstd,
                                                         bool needs_x, bool needs_weight,
                                                         bool plus_one = false);
std::tuple<at::Tensor, at::Tensor> rms_norm_composite(const at::Tensor& x, const at::Tensor& weight,
                                                      double epsilon, bool plus_one = false);
std::tuple<at::Tensor, at::Tensor> rms_norm_backward_composite(const at::Tensor& grad, const at::Tensor& x,
                                                               const at::Tensor& weight,
                                                               const at::Tensor& rstd, bool needs_x,
                                                               bool needs_weight, bool plus_one = false);

}  // namespace trainer
