// The operators behind RmsNorm::after_sum(): a residual sum and the norm of it.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Dropout of what is added. row_keys int64, one per row; nullopt: no dropout.
struct PartDropout {
  std::optional<at::Tensor> row_keys;
  int64_t key = 0;
  double p = 0.0;

  std::vector<at::Tensor> tensors() const {
    return row_keys ? std::vector{*row_keys} : std::vector<at::Tensor>();
  }
};

// Takes x and y [..., size] and weight [size], all of one type. Returns (h = x + dropout(y), rms_norm(h),
// rstd fp32 [rows]) with the bits of the three operators one after another.
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_norm(const at::Tensor& x, const at::Tensor& y,
                                                        const at::Tensor& weight, const PartDropout& dropped,
                                                        double epsilon, bool plus_one);

// grad: of the norm's result; grad_h: of h from elsewhere, if there is one. Returns the gradient of x and,
// with dropout, that of y; without, they are the same and the second is undefined. The weight's is
// rms_norm_backward()'s.
std::tuple<at::Tensor, at::Tensor> add_norm_backward(const at::Tensor& grad,
                                                     const std::optional<at::Tensor>& grad_h,
                                                     const at::Tensor& h, const at::Tensor& weight,
                                                     const at::Tensor& rstd, const PartDropout& dropped,
                                                     bool plus_one);

// The CPU's form of both, one pass over each row: add_norm_cpu.cpp.
decltype(add_norm) add_norm_cpu;
decltype(add_norm_backward) add_norm_backward_cpu;

}  // namespace trainer
