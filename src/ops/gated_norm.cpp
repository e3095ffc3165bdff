#include "ops/gated_norm.h"

#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/op.h"
#include "ops/kernels.h"
#include "ops/plain_view.h"
#include "ops/rms_norm.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// As gated_norm.cu has it.
struct GatedHeads {
  int cols, heads;
  long long gate_stride;
};

// The contiguous inputs, but for the gate, whose tokens are rows of any stride.
struct GatedNormInputs {
  GatedNormInputs(const at::Tensor& x_, const at::Tensor& gate_, const at::Tensor& weight_)
      : x(x_.contiguous()), gate(as_matrix(gate_)), weight(weight_.contiguous()), cols(weight.size(0)) {
    TORCH_CHECK(x_.sizes() == gate_.sizes() && x.size(-1) % cols == 0,
                "gated_norm: x, gate and weight of different shapes");
    if (gate.stride(1) != 1) gate = gate.contiguous();
    rows = x.numel() / cols;
    check_fits(rows, "gated_norm");
    shape = {static_cast<int>(cols), static_cast<int>(x.size(-1) / cols), gate.stride(0)};
  }

  at::Tensor x, gate, weight;
  int64_t cols, rows = 0;
  GatedHeads shape{};
};

std::tuple<at::Tensor, at::Tensor> gated_norm_gpu(const at::Tensor& x, const at::Tensor& gate,
                                                  const at::Tensor& weight, double epsilon) {
  const GatedNormInputs in(x, gate, weight);
  const int64_t width = width_for(in.cols, {in.x, in.gate, in.weight}, {in.shape.gate_stride});
  const Kernels& kernels = kernels_for(in.x, "gated_norm", width);
  const at::Tensor y = at::empty_like(in.x), rstd = at::empty({in.rows}, x.options().dtype(at::kFloat));
  kernels.start("gated_norm_forward", grid_of_rows(in.rows, in.cols, width), elements(in.x, in.x),
                elements(in.gate, in.x), elements(in.weight, in.x), y.mutable_data_ptr(),
                rstd.mutable_data_ptr(), in.shape, static_cast<float>(epsilon));
  return {y, rstd};
}

using GatedNormGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Of x, the gate and the weight, which is undefined if not needed.
GatedNormGradients gated_norm_backward_gpu(const at::Tensor& grad, const at::Tensor& x,
                                           const at::Tensor& gate, const at::Tensor& weight,
                                           const at::Tensor& rstd, bool needs_weight) {
  const GatedNormInputs in(x, gate, weight);
  const at::Tensor g = grad.contiguous();
  const int64_t width = width_for(in.cols, {g, in.x, in.gate, in.weight}, {in.shape.gate_stride});
  const Kernels& kernels = kernels_for(in.x, "gated_norm", width);
  const at::Tensor gx = at::empty_like(in.x), g_gate = at::empty_like(in.x);
  const at::Tensor g_normed = needs_weight ? at::empty_like(in.x) : at::Tensor();
  kernels.start("gated_norm_backward", grid_of_rows(in.rows, in.cols, width), elements(g, in.x),
                elements(in.x, in.x), elements(in.gate, in.x), elements(in.weight, in.x),
                elements(rstd, in.x, at::kFloat), gx.mutable_data_ptr(), g_gate.mutable_data_ptr(),
                needs_weight ? g_normed.mutable_data_ptr() : nullptr, in.shape);
  if (!needs_weight) return {gx, g_gate, {}};
  const auto by_head = [&](const at::Tensor& t) {
    return plain_view(t, {in.rows, in.cols}, {in.cols, 1}, t.storage_offset());
  };
  return {gx, g_gate,
          std::get<1>(rms_norm_backward(by_head(g_normed), by_head(in.x), in.weight, rstd, false, true))};
}

// A CPU composes it.
std::tuple<at::Tensor, at::Tensor> gated_norm_cpu(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                  double) {
  TORCH_CHECK(false, "gated_norm: only a GPU has this operator");
}
GatedNormGradients gated_norm_backward_cpu(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                           const at::Tensor&, const at::Tensor&, bool) {
  TORCH_CHECK(false, "gated_norm: only a GPU has this operator");
}

constexpr Op kGatedNorm{"trainer::gated_norm", gated_norm_cpu, gated_norm_gpu};
constexpr Op kGatedNormBackward{"trainer::gated_norm_backward", gated_norm_backward_cpu,
                                gated_norm_backward_gpu};

struct GatedNormFunction : torch::autograd::Function<GatedNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& weight, double epsilon) {
    const auto [y, rstd] = kGatedNorm(x, gate, weight, epsilon);
    ctx->save_for_backward({x, gate, weight, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [gx, g_gate, g_weight] =
        kGatedNormBackward(grads[0], saved[0], saved[1], saved[2], saved[3], ctx->needs_input_grad(2));
    return {gx, g_gate, g_weight, {}};
  }
};

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight, double epsilon) {
  if (!at::GradMode::is_enabled()) return std::get<0>(kGatedNorm(x, gate, weight, epsilon));
  return GatedNormFunction::apply(x, gate, weight, epsilon);
}

}  // namespace trainer
