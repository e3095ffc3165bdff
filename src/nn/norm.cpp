#include "nn/norm.h"

#include <optional>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/add_norm.h"
#include "ops/dropout.h"
#include "ops/rms_norm.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps x and one number per row; plain autograd keeps five copies of x.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon, bool plus_one) {
    const auto [y, rstd] = rms_norm(x, weight, epsilon, plus_one);
    ctx->save_for_backward({x, weight, rstd});
    ctx->saved_data["plus_one"] = plus_one;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [gx, gw] = rms_norm_backward(grads[0], saved[0], saved[1], saved[2], ctx->needs_input_grad(0),
                                            ctx->needs_input_grad(1), ctx->saved_data["plus_one"].toBool());
    return {gx, gw, {}, {}};
  }
};

// Returns the sum and the norm of it. Keeps the sum and one number per row.
struct AddNormFunction : torch::autograd::Function<AddNormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& weight, const std::optional<at::Tensor>& row_keys,
                               int64_t key, double p, double epsilon, bool plus_one) {
    const auto [h, n, rstd] = add_norm(x, y, weight, {row_keys, key, p}, epsilon, plus_one);
    ctx->save_for_backward({h, weight, rstd, row_keys.value_or(at::Tensor())});
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    ctx->saved_data["plus_one"] = plus_one;
    ctx->set_materialize_grads(false);
    return {h, n};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &h = saved[0], &weight = saved[1], &rstd = saved[2], &from_norm = grads[1];
    const bool plus_one = ctx->saved_data["plus_one"].toBool();
    const PartDropout dropped{saved[3].defined() ? std::optional(saved[3]) : std::nullopt,
                              ctx->saved_data["key"].toInt(), ctx->saved_data["p"].toDouble()};
    at::Tensor gx = grads[0], gy, gw;
    if (from_norm.defined()) {
      const std::optional<at::Tensor> from_sum = gx.defined() ? std::optional(gx) : std::nullopt;
      std::tie(gx, gy) = add_norm_backward(from_norm, from_sum, h, weight, rstd, dropped, plus_one);
      if (ctx->needs_input_grad(2)) {
        gw = std::get<1>(rms_norm_backward(from_norm, h, weight, rstd, false, true, plus_one));
      }
    } else if (dropped.row_keys) {
      gy = dropout_apply(gx, *dropped.row_keys, static_cast<uint64_t>(dropped.key), dropped.p);
    }
    return {gx, gy.defined() ? gy : gx, gw, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor norm_without_weight(const at::Tensor& x, const at::Tensor& ones, double epsilon) {
  const at::Tensor by = ones.narrow(0, 0, x.size(-1));
  if (!at::GradMode::is_enabled()) return std::get<0>(rms_norm(x, by, epsilon));
  return RmsNormFunction::apply(x, by, epsilon, /*plus_one=*/false);
}

RmsNorm::RmsNorm(int64_t size, const NormFacts& facts) : weight({size}), facts_(facts) {
  add("weight", weight);
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  const bool plus_one = facts_.scale == NormScale::one_plus_weight;
  const at::Tensor by = weight.as(x.scalar_type());
  if (!at::GradMode::is_enabled()) return std::get<0>(rms_norm(x, by, facts_.epsilon, plus_one));
  return RmsNormFunction::apply(x, by, facts_.epsilon, plus_one);
}

std::pair<at::Tensor, at::Tensor> RmsNorm::after_sum(const at::Tensor& x, const at::Tensor& y,
                                                     const at::Tensor& row_keys, uint64_t key,
                                                     double p) const {
  const std::optional<at::Tensor> keys = p > 0 ? std::optional(row_keys) : std::nullopt;
  const bool plus_one = facts_.scale == NormScale::one_plus_weight;
  const at::Tensor by = weight.as(x.scalar_type());
  if (!at::GradMode::is_enabled()) {
    const auto [h, n, rstd] =
        add_norm(x, y, by, {keys, static_cast<int64_t>(key), p}, facts_.epsilon, plus_one);
    return {h, n};
  }
  const variable_list out =
      AddNormFunction::apply(x, y, by, keys, static_cast<int64_t>(key), p, facts_.epsilon, plus_one);
  return {out[0], out[1]};
}

}  // namespace trainer
