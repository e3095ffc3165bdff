// The operators behind RmsNorm.
#pragma once

#include <tuple>

#include <ATen/core/Tensor.h>

namespace trainer {

// Takes x [..., size] and weight [size] in x's type; returns (result with x's shape, rstd fp32 [rows]). The
// result is x / rms in fp32, rounded to x's type, times the weight, rounded again. With plus_one it is
// x / rms * (1 + weight) in fp32, rounded once. A row's result depends only on the row.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                                            bool plus_one = false);

// Returns the gradients of x and of the weight; undefined if not needed. Computed in fp32, rounded once. Sums
// over rows are divided by the number of rows, not by the number of threads.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const at::Tensor& weight, const at::Tensor& rstd,
                                                     bool needs_x, bool needs_weight, bool plus_one = false);

// The CPU's form of both: rms_norm_cpu.cpp.
decltype(rms_norm) rms_norm_cpu;
decltype(rms_norm_backward) rms_norm_backward_cpu;

}  // namespace trainer
