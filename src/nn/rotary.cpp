#include "nn/rotary.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "ops/rotate_qk.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<at::Tensor> maybe(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// Without norms it keeps nothing but the tables.
struct RotateQk : torch::autograd::Function<RotateQk> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const std::optional<at::Tensor>& q_weight,
                               const std::optional<at::Tensor>& k_weight, const at::Tensor& cos,
                               const at::Tensor& sin, double epsilon, bool plus_one) {
    const RotatedQk rotated = rotate_qk({q, k}, {q_weight, k_weight, epsilon, plus_one}, cos, sin);
    variable_list saved{cos, sin};
    if (q_weight) {
      saved.insert(saved.end(), {q, k, *q_weight, *k_weight, rotated.rstd.q, rotated.rstd.k});
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["epsilon"] = epsilon;
    ctx->saved_data["plus_one"] = plus_one;
    return {rotated.out.q, rotated.out.k};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    const bool normed = saved.size() > 2, trained = normed && ctx->needs_input_grad(2);
    saved.resize(8);
    const QkNorms norms{maybe(saved[4]), maybe(saved[5]), ctx->saved_data["epsilon"].toDouble(),
                        ctx->saved_data["plus_one"].toBool()};
    const QkGradients out = rotate_qk_backward({grads[0], grads[1]}, {saved[2], saved[3]},
                                               {saved[6], saved[7]}, norms, saved[0], saved[1], trained);
    return {out.in.q, out.in.k, out.weights.q, out.weights.k, {}, {}, {}, {}};
  }
};

}  // namespace

Rotary::Rotary(const RopeParameters& parameters)
    : parameters_(parameters), inverse_frequencies_(rope_frequencies(parameters)) {}

// Returns [rotary_dim / 2]; if sequences have frequencies of their own, [batch, 1, rotary_dim / 2], or in one
// row [1, seq, rotary_dim / 2].
at::Tensor Rotary::inverse_frequencies(const std::vector<int64_t>& lengths, bool in_one_row) const {
  const auto is_long = [&](int64_t length) { return long_for_rope(parameters_, length); };
  if (std::ranges::none_of(lengths, is_long)) return inverse_frequencies_;
  std::vector<at::Tensor> rows;
  for (const int64_t length : lengths) {
    rows.push_back(is_long(length) ? long_rope_frequencies(parameters_, length) : inverse_frequencies_);
    if (in_one_row) rows.back() = rows.back().expand({length, -1});
  }
  return in_one_row ? at::cat(rows).unsqueeze(0) : at::stack(rows).unsqueeze(1);
}

// The host would wait for every copy to a GPU, so the one that all batches use is kept.
at::Tensor Rotary::on_device(const at::Tensor& frequencies, at::Device device) const {
  if (target_of(device) != c10::kCUDA || !frequencies.is_same(inverse_frequencies_))
    return frequencies.to(device);
  if (!on_gpu_.defined() || on_gpu_.device() != device) on_gpu_ = frequencies.to(device);
  return on_gpu_;
}

Rotary::Tables Rotary::tables(const at::Tensor& positions, const std::vector<int64_t>& lengths,
                              const at::TensorOptions& options) const {
  const bool in_one_row = positions.dim() == 2 && positions.size(0) == 1 && lengths.size() > 1;
  const at::Tensor inverse = on_device(inverse_frequencies(lengths, in_one_row), options.device());
  at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * inverse;  // [(batch,) seq, rotary_dim / 2]
  if (angles.dim() == 3) angles = angles.unsqueeze(1);                   // the same for all heads
  at::Tensor cos = angles.cos(), sin = angles.sin();
  if (parameters_.attention_factor != 1.0) {
    cos.mul_(parameters_.attention_factor);
    sin.mul_(parameters_.attention_factor);
  }
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  return {cos.to(type), sin.to(type)};
}

std::pair<at::Tensor, at::Tensor> Rotary::apply(const at::Tensor& q, const at::Tensor& k,
                                                const RmsNorm* q_norm, const RmsNorm* k_norm,
                                                const Tables& tables) {
  std::optional<at::Tensor> q_weight, k_weight;
  NormFacts facts;
  if (q_norm != nullptr) {
    q_weight = q_norm->weight.as(q.scalar_type());
    k_weight = k_norm->weight.as(k.scalar_type());
    facts = q_norm->facts();
  }
  const variable_list out = RotateQk::apply(q, k, q_weight, k_weight, tables.cos, tables.sin, facts.epsilon,
                                            facts.scale == NormScale::one_plus_weight);
  return {out[0], out[1]};
}

}  // namespace trainer
