#include "ops/causal_conv.h"

#include <ATen/ATen.h>

#include "device/op.h"

namespace trainer {
namespace {

constexpr Op kCausalConv{"trainer::causal_conv", causal_conv_cpu, causal_conv_composed};
constexpr Op kCausalConvBackward{"trainer::causal_conv_backward", causal_conv_backward_cpu};

}  // namespace

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs, bool silu) {
  return kCausalConv(x, weight, runs, silu);
}

std::tuple<at::Tensor, at::Tensor> causal_conv_backward(const at::Tensor& grad, const at::Tensor& x,
                                                        const at::Tensor& weight, const TokenRuns& runs,
                                                        bool silu, bool needs_weight) {
  return kCausalConvBackward(grad, x, weight, runs, silu, needs_weight);
}

}  // namespace trainer
