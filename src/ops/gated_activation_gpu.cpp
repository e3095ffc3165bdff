// The gated activation on a GPU: gated_activation.cu, or LibTorch's operators.
#include <ATen/ATen.h>

#include "ops/gated_activation.h"
#include "ops/kernels.h"

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

// As gated_activation.cu has it.
struct Rows {
  long long cols, gate_stride, up_stride;
};

// x as a matrix of rows whose elements are next to each other; a view if x is, as a slice of columns is.
at::Tensor as_rows(const at::Tensor& x) {
  if (x.dim() < 2 || x.stride(-1) != 1) return x.contiguous().view({-1, x.size(-1)});
  return x.flatten(0, -2);
}

struct Inputs {
  Inputs(const at::Tensor& gate_, const at::Tensor& up_)
      : gate(as_rows(gate_)), up(as_rows(up_)), rows{gate.size(1), gate.stride(0), up.stride(0)} {}
  at::Tensor gate, up;
  Rows rows;
};

const Kernels* kernels_of(const Inputs& in, int64_t threads, int64_t width) {
  return fits_int(threads) ? kernels_for(in.gate, kernel_files::gated_activation, width) : nullptr;
}

}  // namespace

at::Tensor gated_composite(const at::Tensor& gate, const at::Tensor& up, int64_t kind) {
  return activate(static_cast<Activation>(kind), gate).mul_(up);
}

at::Tensor gated_backward_composite(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                                    int64_t kind, at::Tensor g_up) {
  const Activation activation = static_cast<Activation>(kind);
  const at::Tensor g = grad * up;
  at::mul_out(g_up, activate(activation, gate), grad);
  if (activation == Activation::silu) return at::silu_backward(g, gate);
  if (activation == Activation::relu) return at::threshold_backward(g, gate, 0);
  return at::gelu_backward(g, gate, activation == Activation::gelu ? "none" : "tanh");
}

at::Tensor gated_gpu(const at::Tensor& gate_, const at::Tensor& up_, int64_t kind) {
  TORCH_CHECK(gate_.sizes() == up_.sizes(), "gated_activation: gate and up of different shapes");
  const Inputs in(gate_, up_);
  const int64_t count = in.gate.numel(),
                width = width_for(in.rows.cols, {in.gate, in.up}, {in.rows.gate_stride, in.rows.up_stride});
  const Kernels* kernels = kernels_of(in, count / width, width);
  if (kernels == nullptr) return gated_composite(gate_, up_, kind);
  at::Tensor out = at::empty(gate_.sizes(), gate_.options());
  kernels->start("gated_forward", grid_of(count / width), elements(in.gate, in.gate),
                 elements(in.up, in.gate), out.mutable_data_ptr(), count, in.rows, number_of(kind));
  return out;
}

at::Tensor gated_backward_gpu(const at::Tensor& grad, const at::Tensor& gate_, const at::Tensor& up_,
                              int64_t kind, at::Tensor g_up) {
  const at::Tensor g = grad.contiguous();
  const Inputs in(gate_, up_);
  const int64_t count = in.gate.numel(), width = width_for(in.rows.cols, {g, in.gate, in.up},
                                                           {in.rows.gate_stride, in.rows.up_stride});
  const Kernels* kernels = kernels_of(in, count / width, width);
  if (kernels == nullptr) return gated_backward_composite(grad, gate_, up_, kind, std::move(g_up));
  at::Tensor g_gate = at::empty(gate_.sizes(), gate_.options());
  kernels->start("gated_backward", grid_of(count / width), elements(g, in.gate), elements(in.gate, in.gate),
                 elements(in.up, in.gate), g_gate.mutable_data_ptr(), g_up.mutable_data_ptr(), count, in.rows,
                 number_of(kind));
  return g_gate;
}

}  // namespace trainer
