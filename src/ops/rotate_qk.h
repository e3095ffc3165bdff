// The operators behind Rotary::apply(): norms of queries and keys, if there are any, and the rotary
// embedding of both.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// The norms over head_dim; without weights there are none.
struct QkNorms {
  std::optional<at::Tensor> q_weight, k_weight;  // [head_dim] in q's type; both or neither
  double epsilon = 0.0;
  bool plus_one = false;

  std::vector<at::Tensor> tensors() const {
    return q_weight ? std::vector{*q_weight, *k_weight} : std::vector<at::Tensor>();
  }
};

struct QkPair {
  at::Tensor q, k;

  std::vector<at::Tensor> tensors() const { return {q, k}; }
};

struct RotatedQk {
  QkPair out;   // [batch, heads, seq, head_dim], laid out as [batch, seq, heads, head_dim]
  QkPair rstd;  // fp32, one number for each head of each position; undefined without norms

  std::vector<at::Tensor> tensors() const { return {out.q, out.k, rstd.q, rstd.k}; }
};

// Takes q and k [batch, seq, heads, head_dim] and the tables of Rotary; of each head, the first columns are
// rotated, twice as many as the tables have, and the rest passes. Rounds like rms_norm() and then
// rotate().
RotatedQk rotate_qk(const QkPair& in, const QkNorms& norms, const at::Tensor& cos, const at::Tensor& sin);

struct QkGradients {
  QkPair in;       // [batch, seq, heads, head_dim]
  QkPair weights;  // undefined unless wanted
  at::Tensor v;    // as `in`; undefined if there are no values

  std::vector<at::Tensor> tensors() const { return {in.q, in.k, weights.q, weights.k, v}; }
};

// Takes the gradients of the results and, with norms, what rotate_qk() took and returned: otherwise `in` and
// `rstd` may be undefined. The gradient of the values, `grad_v` [batch, heads, seq, head_dim], is laid beside
// the others on a GPU: all are columns of one matrix then.
QkGradients rotate_qk_backward(const QkPair& grad, const QkPair& in, const QkPair& rstd, const QkNorms& norms,
                               const at::Tensor& cos, const at::Tensor& sin, bool needs_weights,
                               const at::Tensor& grad_v = {});

// The CPU's form of both: rotate_qk_cpu.cpp, rms_norm() and rotate(), one after the other.
decltype(rotate_qk) rotate_qk_cpu;
decltype(rotate_qk_backward) rotate_qk_backward_cpu;

// The loop of one tensor on the CPU. Takes x [batch, heads, seq, head_dim] and tables of n <= head_dim / 2
// columns. With halves [x1, x2] of the first 2 n columns, returns [x1 cos - x2 sin, x2 cos + x1 sin, the
// other columns of x]. bf16 is rounded after each product, as in transformers. `back`: the inverse, which is
// the gradient. The result is laid out in memory as [batch, seq, heads, head_dim], as the projections return
// and take it.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back);

}  // namespace trainer
