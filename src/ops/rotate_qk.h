// The operators behind Rotary::apply(): norms of queries and keys, if there are any, and the rotary
// embedding of both.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace trainer {

// The norms over head_dim; without weights there are none.
struct QkNorms {
  std::optional<at::Tensor> q_weight, k_weight;  // [head_dim] in q's type; both or neither
  double epsilon = 0.0;
  bool plus_one = false;
};

struct QkPair {
  at::Tensor q, k;
};

struct RotatedQk {
  QkPair out;   // [batch, heads, seq, head_dim], laid out as [batch, seq, heads, head_dim]
  QkPair rstd;  // fp32, one number for each head of each position; undefined without norms
};

// Takes q and k [batch, seq, heads, head_dim] and the tables of Rotary; of each head, the first columns are
// rotated, twice as many as the tables have, and the rest passes. Rounds like rms_norm() and then
// rotate().
RotatedQk rotate_qk(const QkPair& in, const QkNorms& norms, const at::Tensor& cos, const at::Tensor& sin);

struct QkGradients {
  QkPair in;       // [batch, seq, heads, head_dim]
  QkPair weights;  // undefined unless wanted
};

// Takes the gradients of the results and, with norms, what rotate_qk() took and returned: otherwise `in` and
// `rstd` may be undefined.
QkGradients rotate_qk_backward(const QkPair& grad, const QkPair& in, const QkPair& rstd, const QkNorms& norms,
                               const at::Tensor& cos, const at::Tensor& sin, bool needs_weights);

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using MaybeTensor = std::optional<at::Tensor>;

// What CUDA uses: rotate_qk.cu, or the composite if that does not work. The CPU uses the composite:
// rms_norm() and rotate(), one after the other. They return q's and k's results, then q's and k's rstd or the
// gradients of the weights.
FourTensors rotate_qk_gpu(const at::Tensor& q, const at::Tensor& k, const MaybeTensor& q_weight,
                          const MaybeTensor& k_weight, const at::Tensor& cos, const at::Tensor& sin,
                          double epsilon, bool plus_one);
FourTensors rotate_qk_backward_gpu(const at::Tensor& grad_q, const at::Tensor& grad_k, const MaybeTensor& q,
                                   const MaybeTensor& k, const MaybeTensor& q_weight,
                                   const MaybeTensor& k_weight, const MaybeTensor& q_rstd,
                                   const MaybeTensor& k_rstd, const at::Tensor& cos, const at::Tensor& sin,
                                   bool plus_one, bool needs_weights);
FourTensors rotate_qk_composite(const at::Tensor& q, const at::Tensor& k, const MaybeTensor& q_weight,
                                const MaybeTensor& k_weight, const at::Tensor& cos, const at::Tensor& sin,
                                double epsilon, bool plus_one);
FourTensors rotate_qk_backward_composite(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                         const MaybeTensor& q, const MaybeTensor& k,
                                         const MaybeTensor& q_weight, const MaybeTensor& k_weight,
                                         const MaybeTensor& q_rstd, const MaybeTensor& k_rstd,
                                         const at::Tensor& cos, const at::Tensor& sin, bool plus_one,
                                         bool needs_weights);

}  // namespace trainer
