#include "nn/dora_linear.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/dropout.h"
#include "ops/matmul.h"
#include "weights/weight_products.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kPieceBytes = 16 << 20;  // bytes of W + scale * B A in fp32

struct KeptWeight : torch::CustomClassHolder {
  explicit KeptWeight(const Weight& kept) : weight(kept) {}
  Weight weight;
};

struct DoraLinear : torch::autograd::Function<DoraLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& c, const at::Tensor& row_keys, int64_t key, double p,
                            double scale) {
    const at::Tensor input = for_products(x);
    const at::Tensor dropped = p > 0 ? dropout_apply(input, row_keys, static_cast<uint64_t>(key), p) : input;
    const at::Tensor low_rank = times_transposed(dropped, a);  // [rows, r]
    const at::Tensor frozen = times_transposed(dropped, weight, x.scalar_type());
    at::Tensor y = at::addmm(frozen, low_rank, for_products(b).t(), 1, scale).to(at::kFloat).mul_(c);
    if (p > 0) y.sub_(frozen).add_(times_transposed(input, weight, x.scalar_type()));
    if (bias) y.add_(*bias);
    ctx->save_for_backward({x, a, b, c, low_rank, row_keys});
    ctx->saved_data["weight"] = c10::IValue::make_capsule(c10::make_intrusive<KeptWeight>(weight));
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    ctx->saved_data["scale"] = scale;
    return y.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &a = saved[1], &b = saved[2], &c = saved[3], &low_rank = saved[4],
                     &row_keys = saved[5];
    const auto kept = c10::static_intrusive_pointer_cast<KeptWeight>(ctx->saved_data["weight"].toCapsule());
    const Weight& weight = kept->weight;
    const uint64_t key = static_cast<uint64_t>(ctx->saved_data["key"].toInt());
    const double p = ctx->saved_data["p"].toDouble(), scale = ctx->saved_data["scale"].toDouble();
    const at::Tensor gy = for_products(grads[0]);

    const at::Tensor input = for_products(x);
    const at::Tensor dropped = p > 0 ? dropout_apply(input, row_keys, key, p) : input;
    const at::Tensor before_c =
        times_transposed(dropped, weight, x.scalar_type()).addmm_(low_rank, for_products(b).t(), 1, scale);
    const at::Tensor gc = before_c.to(at::kFloat).mul_(gy).sum(0);
    const at::Tensor scaled = (gy * c).to(gy.scalar_type());  // [rows, out]
    const at::Tensor gb = product(scaled.t(), low_rank).mul_(scale).to(b.scalar_type());
    const at::Tensor g_low_rank = times(scaled, b).mul_(scale);
    const at::Tensor ga = product(g_low_rank.t(), dropped).to(a.scalar_type());
    at::Tensor gx;
    if (ctx->needs_input_grad(0)) {
      // With dropout, (c - 1) of the frozen product uses the dropped-out copy, 1 uses x itself.
      gx = times(p > 0 ? scaled - gy : scaled, weight, x.scalar_type());
      times_into(gx, g_low_rank, a);
      if (p > 0) {
        gx = dropout_apply(gx, row_keys, key, p);
        times_into(gx, gy, weight, x.scalar_type());
      }
      gx = gx.to(x.scalar_type());
    }
    return {gx, {}, {}, ga, gb, gc, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor dora_norm(const Weight& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  const at::NoGradGuard no_grad;
  at::Tensor norm = at::empty({weight.size(0)}, a.options());
  const int64_t step = std::max<int64_t>(1, kPieceBytes / (4 * weight.size(1)));
  for (int64_t row = 0; row < weight.size(0); row += step) {
    const int64_t rows = std::min(step, weight.size(0) - row);
    const at::Tensor piece =
        at::addmm(weight.rows(row, rows, at::kFloat).to(a.device()), b.narrow(0, row, rows), a, 1, scale);
    norm.narrow(0, row, rows).copy_(at::linalg_vector_norm(piece, 2, {1}));
    if (norm.is_meta()) break;  // a plan: no later piece takes more
  }
  return norm;
}

at::Tensor dora_linear(const at::Tensor& x, const Weight& weight, const std::optional<at::Tensor>& bias,
                       const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                       const at::Tensor& row_keys, uint64_t key, double p, double scale) {
  return DoraLinear::apply(x, weight, bias, a, b, c, row_keys, static_cast<int64_t>(key), p, scale);
}

}  // namespace trainer
