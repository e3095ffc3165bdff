// Queries and keys on the CPU: their norms, and the loop of the rotary embedding.
#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "device/op.h"
#include "ops/attention_heads.h"
#include "ops/rms_norm.h"
#include "ops/rotate_qk.h"

namespace trainer {
namespace {

// All heads of one position; `direction` 1 or -1. The separate function for one head lets the compiler see
// that nothing overlaps.
template <class T>
TRAINER_INLINE void rotate_head(const T* __restrict__ x1, const T* __restrict__ x2, T* __restrict__ y1,
                                T* __restrict__ y2, const T* __restrict__ cos, const T* __restrict__ sin,
                                float direction, int64_t half) {
  for (int64_t c = 0; c < half; c++) {
    const float a = static_cast<float>(x1[c]), b = static_cast<float>(x2[c]);
    const float co = static_cast<float>(cos[c]), si = static_cast<float>(sin[c]) * direction;
    y1[c] = static_cast<T>(static_cast<float>(static_cast<T>(a * co)) -
                           static_cast<float>(static_cast<T>(b * si)));
    y2[c] = static_cast<T>(static_cast<float>(static_cast<T>(b * co)) +
                           static_cast<float>(static_cast<T>(a * si)));
  }
}

template <class T>
TRAINER_VECTORISED void rotate_heads(const T* __restrict__ x, int64_t x_stride, T* __restrict__ y,
                                     const T* __restrict__ cos, const T* __restrict__ sin, float direction,
                                     int64_t heads, int64_t head_dim, int64_t half) {
  for (int64_t head = 0; head < heads; head++) {
    const T* __restrict__ x1 = x + head * x_stride;
    T* __restrict__ y1 = y + head * head_dim;
    rotate_head(x1, x1 + half, y1, y1 + half, cos, sin, direction, half);
    std::copy(x1 + 2 * half, x1 + head_dim, y1 + 2 * half);
  }
}

}  // namespace

at::Tensor rotate(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const at::Tensor x = input.stride(3) == 1 ? input : input.contiguous();
  const int64_t batch = x.size(0), heads = x.size(1), seq = x.size(2), head_dim = x.size(3),
                half = cos.size(-1);
  const at::Tensor c = cos.contiguous().expand({batch, 1, seq, half});
  const at::Tensor s = sin.contiguous().expand({batch, 1, seq, half});
  at::Tensor out = empty_by_position(x);
  if (x.is_meta()) return out;
  with_element_type(x, "rotate", [&]<class T>() {
    const T *from = x.const_data_ptr<T>(), *c_from = c.const_data_ptr<T>(), *s_from = s.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    const int64_t grain = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(head_dim * heads, 1));
    at::parallel_for(0, batch * seq, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / seq, position = i % seq;
        const int64_t table = b * c.stride(0) + position * c.stride(2);
        rotate_heads(from + b * x.stride(0) + position * x.stride(2), x.stride(1), to + i * heads * head_dim,
                     c_from + table, s_from + table, back ? -1.0f : 1.0f, heads, head_dim, half);
      }
    });
  });
  return out;
}

RotatedQk rotate_qk_cpu(const QkPair& in, const QkNorms& norms, const at::Tensor& cos,
                        const at::Tensor& sin) {
  const auto one = [&](const at::Tensor& x, const std::optional<at::Tensor>& weight) {
    at::Tensor heads = x, rstd;
    if (weight) std::tie(heads, rstd) = rms_norm(x, *weight, norms.epsilon, norms.plus_one);
    return std::pair(rotate(heads.transpose(1, 2), cos, sin, /*back=*/false), rstd);
  };
  const auto [q, q_rstd] = one(in.q, norms.q_weight);
  const auto [k, k_rstd] = one(in.k, norms.k_weight);
  return {{q, k}, {q_rstd, k_rstd}};
}

QkGradients rotate_qk_backward_cpu(const QkPair& grad, const QkPair& in, const QkPair& rstd,
                                   const QkNorms& norms, const at::Tensor& cos, const at::Tensor& sin,
                                   bool needs_weights, const at::Tensor& grad_v) {
  const auto one = [&](const at::Tensor& grad_of_one, const at::Tensor& x,
                       const std::optional<at::Tensor>& weight, const at::Tensor& rstd_of_one) {
    const at::Tensor g = rotate(grad_of_one, cos, sin, /*back=*/true).transpose(1, 2);
    if (!weight) return std::tuple(g, at::Tensor());
    return rms_norm_backward(g, x, *weight, rstd_of_one, /*needs_x=*/true, needs_weights, norms.plus_one);
  };
  const auto [gq, gq_weight] = one(grad.q, in.q, norms.q_weight, rstd.q);
  const auto [gk, gk_weight] = one(grad.k, in.k, norms.k_weight, rstd.k);
  return {{gq, gk}, {gq_weight, gk_weight}, grad_v.defined() ? grad_v.transpose(1, 2) : at::Tensor()};
}

}  // namespace trainer
