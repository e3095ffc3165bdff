#include "ops/rotate_qk.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "device/operators.h"
#include "ops/rms_norm.h"
#include "ops/rotate.h"

namespace trainer {

FourTensors rotate_qk_composite(const at::Tensor& q, const at::Tensor& k, const MaybeTensor& q_weight,
                                const MaybeTensor& k_weight, const at::Tensor& cos, const at::Tensor& sin,
                                double epsilon, bool plus_one) {
  const auto one = [&](const at::Tensor& x, const MaybeTensor& weight) {
    at::Tensor heads = x, rstd;
    if (weight) std::tie(heads, rstd) = rms_norm(x, *weight, epsilon, plus_one);
    return std::pair(rotate(heads.transpose(1, 2), cos, sin, /*back=*/false), rstd);
  };
  const auto [q_out, q_rstd] = one(q, q_weight);
  const auto [k_out, k_rstd] = one(k, k_weight);
  return {q_out, k_out, q_rstd, k_rstd};
}

FourTensors rotate_qk_backward_composite(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                         const MaybeTensor& q, const MaybeTensor& k,
                                         const MaybeTensor& q_weight, const MaybeTensor& k_weight,
                                         const MaybeTensor& q_rstd, const MaybeTensor& k_rstd,
                                         const at::Tensor& cos, const at::Tensor& sin, bool plus_one,
                                         bool needs_weights) {
  const auto one = [&](const at::Tensor& grad, const MaybeTensor& x, const MaybeTensor& weight,
                       const MaybeTensor& rstd) {
    const at::Tensor g = rotate(grad, cos, sin, /*back=*/true).transpose(1, 2);
    if (!weight) return std::tuple(g, at::Tensor());
    return rms_norm_backward(g, *x, *weight, *rstd, /*needs_x=*/true, needs_weights, plus_one);
  };
  const auto [gq, gq_weight] = one(grad_q, q, q_weight, q_rstd);
  const auto [gk, gk_weight] = one(grad_k, k, k_weight, k_rstd);
  return {gq, gk, gq_weight, gk_weight};
}

TORCH_LIBRARY_FRAGMENT(trainer, library) {
  library.def(
      "rotate_qk(Tensor q, Tensor k, Tensor? q_weight, Tensor? k_weight, Tensor cos, Tensor sin, float "
      "epsilon, bool plus_one) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "rotate_qk_backward(Tensor grad_q, Tensor grad_k, Tensor? q, Tensor? k, Tensor? q_weight, Tensor? "
      "k_weight, Tensor? q_rstd, Tensor? k_rstd, Tensor cos, Tensor sin, bool plus_one, bool needs_weights) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) {
  library.impl("rotate_qk", rotate_qk_composite);
  library.impl("rotate_qk_backward", rotate_qk_backward_composite);
}
TORCH_LIBRARY_IMPL(trainer, Meta, library) {
  library.impl("rotate_qk", ByTarget<rotate_qk_composite, rotate_qk_gpu>::call);
  library.impl("rotate_qk_backward", ByTarget<rotate_qk_backward_composite, rotate_qk_backward_gpu>::call);
}
TORCH_LIBRARY_IMPL(trainer, CUDA, library) {
  library.impl("rotate_qk", rotate_qk_gpu);
  library.impl("rotate_qk_backward", rotate_qk_backward_gpu);
}

RotatedQk rotate_qk(const QkPair& in, const QkNorms& norms, const at::Tensor& cos, const at::Tensor& sin) {
  static const Operator<FourTensors(const at::Tensor&, const at::Tensor&, const MaybeTensor&,
                                    const MaybeTensor&, const at::Tensor&, const at::Tensor&, double, bool)>
      op("trainer::rotate_qk");
  const auto [q, k, q_rstd, k_rstd] =
      op(in.q, in.k, norms.q_weight, norms.k_weight, cos, sin, norms.epsilon, norms.plus_one);
  return {{q, k}, {q_rstd, k_rstd}};
}

QkGradients rotate_qk_backward(const QkPair& grad, const QkPair& in, const QkPair& rstd, const QkNorms& norms,
                               const at::Tensor& cos, const at::Tensor& sin, bool needs_weights) {
  static const Operator<FourTensors(const at::Tensor&, const at::Tensor&, const MaybeTensor&,
                                    const MaybeTensor&, const MaybeTensor&, const MaybeTensor&,
                                    const MaybeTensor&, const MaybeTensor&, const at::Tensor&,
                                    const at::Tensor&, bool, bool)>
      op("trainer::rotate_qk_backward");
  const auto maybe = [](const at::Tensor& t) { return t.defined() ? MaybeTensor(t) : std::nullopt; };
  const auto [gq, gk, gq_weight, gk_weight] =
      op(grad.q, grad.k, maybe(in.q), maybe(in.k), norms.q_weight, norms.k_weight, maybe(rstd.q),
         maybe(rstd.k), cos, sin, norms.plus_one, needs_weights);
  return {{gq, gk}, {gq_weight, gk_weight}};
}

}  // namespace trainer
