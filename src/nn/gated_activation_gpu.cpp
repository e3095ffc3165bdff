// The gated activation on a GPU: kernels/gated_activation.cu, or LibTorch's operators.
#include <ATen/ATen.h>

#include "nn/gated_activation.h"
#include "nn/kernels.h"

namespace trainer {
namespace {

// The number that the kernels use for an activation.
int number_of(int64_t kind) {
  switch (static_cast<Activation>(kind)) {
    case Activation::silu:
      return 0;
    case Activation::gelu:
      return 1;
    case Activation::gelu_tanh:
      return 2;
    case Activation::relu:
      return 3;
    default:
      TORCH_CHECK(false, "gated_activation: no kernel for activation ", kind);
  }
}

}  // namespace

at::Tensor gated_composite(const at::Tensor& gate, const at::Tensor& up, int64_t kind) {
  return activate(static_cast<Activation>(kind), gate).mul_(up);
}

std::tuple<at::Tensor, at::Tensor> gated_backward_composite(const at::Tensor& grad, const at::Tensor& gate,
                                                            const at::Tensor& up, int64_t kind) {
  const Activation activation = static_cast<Activation>(kind);
  const at::Tensor g = grad * up, g_up = activate(activation, gate).mul_(grad);
  if (activation == Activation::silu) return {at::silu_backward(g, gate), g_up};
  if (activation == Activation::relu) return {at::threshold_backward(g, gate, 0), g_up};
  return {at::gelu_backward(g, gate, activation == Activation::gelu ? "none" : "tanh"), g_up};
}

at::Tensor gated_gpu(const at::Tensor& gate_, const at::Tensor& up_, int64_t kind) {
  TORCH_CHECK(gate_.sizes() == up_.sizes(), "gated_activation: gate and up of different shapes");
  const at::Tensor gate = gate_.contiguous(), up = up_.contiguous();
  const int64_t count = gate.numel(), width = width_for(count, {gate, up});
  const Kernels* kernels = kernels_for(gate, kernel_files::gated_activation, width);
  if (kernels == nullptr) return gated_composite(gate_, up_, kind);
  at::Tensor out = at::empty_like(gate);
  kernels->start("gated_forward", grid_of(count / width), elements(gate, gate), elements(up, gate),
                 out.mutable_data_ptr(), count, number_of(kind));
  return out;
}

std::tuple<at::Tensor, at::Tensor> gated_backward_gpu(const at::Tensor& grad, const at::Tensor& gate_,
                                                      const at::Tensor& up_, int64_t kind) {
  const at::Tensor g = grad.contiguous(), gate = gate_.contiguous(), up = up_.contiguous();
  const int64_t count = gate.numel(), width = width_for(count, {g, gate, up});
  const Kernels* kernels = kernels_for(gate, kernel_files::gated_activation, width);
  if (kernels == nullptr) return gated_backward_composite(grad, gate_, up_, kind);
  at::Tensor g_gate = at::empty_like(gate), g_up = at::empty_like(up);
  kernels->start("gated_backward", grid_of(count / width), elements(g, gate), elements(gate, gate),
                 elements(up, gate), g_gate.mutable_data_ptr(), g_up.mutable_data_ptr(), count,
                 number_of(kind));
  return {g_gate, g_up};
}

}  // namespace trainer
