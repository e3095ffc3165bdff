// The operators behind RmsNorm::after_sum(): a residual sum and the norm of it.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace trainer {

// Dropout of what is added. row_keys int64, one per row; nullopt: no dropout.
struct PartDropout {
  std::optional<at::Tensor> row_keys;
  int64_t key = 0;
  double p = 0.0;
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

// The operators' signatures.
using AddNorm = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor& x, const at::Tensor& y,
                                                               const at::Tensor& weight,
                                                               const std::optional<at::Tensor>& row_keys,
                                                               int64_t key, double p, double epsilon,
                                                               bool plus_one);
using AddNormBackward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor& grad,
                                                           const std::optional<at::Tensor>& grad_h,
                                                           const at::Tensor& h, const at::Tensor& weight,
                                                           const at::Tensor& rstd,
                                                           const std::optional<at::Tensor>& row_keys,
                                                           int64_t key, double p, bool plus_one);

// What the CPU uses: one pass over each row.
AddNorm add_norm_host;
AddNormBackward add_norm_backward_host;
// What CUDA uses: add_norm.cu, or the composite if that does not work: the operators that are fused,
// one after another.
AddNorm add_norm_gpu, add_norm_composite;
AddNormBackward add_norm_backward_gpu, add_norm_backward_composite;

}  // namespace trainer
