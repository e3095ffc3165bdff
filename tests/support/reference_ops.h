// The operators of src/ops composed of LibTorch's, which the tests compare them with. They round where ours
// do.
#pragma once

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "base/dropout_mask.h"
#include "formats/bitsandbytes.h"
#include "ops/activation.h"
#include "ops/attention_heads.h"
#include "ops/attention_weights.h"
#include "ops/nf4.h"

namespace trainer::reference {

inline std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& weight,
                                                   double epsilon, bool plus_one = false) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = wide.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();  // [..., 1]
  if (plus_one) return {(wide * rstd).mul_(weight.to(at::kFloat) + 1).to(x.scalar_type()), rstd.view({-1})};
  return {(wide * rstd).to(x.scalar_type()).mul_(weight), rstd.view({-1})};
}

inline std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                            const at::Tensor& weight, const at::Tensor& rstd,
                                                            bool needs_x, bool needs_weight,
                                                            bool plus_one = false) {
  std::vector<int64_t> one_a_row = x.sizes().vec();
  one_a_row.back() = 1;
  const at::Tensor r = rstd.view(one_a_row), normalised = x.to(at::kFloat) * r;
  at::Tensor gx, gw;
  if (needs_weight) {
    const at::Tensor met = plus_one ? normalised : normalised.to(x.scalar_type());
    const at::Tensor product = grad.to(at::kFloat) * met;
    gw = product.reshape({-1, x.size(-1)}).sum(0).to(weight.scalar_type());
  }
  if (needs_x) {
    const at::Tensor g = grad.to(at::kFloat) * (plus_one ? weight.to(at::kFloat) + 1 : weight);
    const at::Tensor along = (g * normalised).mean(-1, /*keepdim=*/true);
    gx = g.addcmul(normalised, along, -1).mul_(r).to(x.scalar_type());
  }
  return {gx, gw};
}

inline at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, int64_t kind) {
  return activate(static_cast<Activation>(kind), gate).mul_(up);
}

inline at::Tensor gated_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                                 int64_t kind, at::Tensor g_up) {
  const Activation activation = static_cast<Activation>(kind);
  const at::Tensor g = grad * up;
  at::mul_out(g_up, activate(activation, gate), grad);
  if (activation == Activation::silu) return at::silu_backward(g, gate);
  if (activation == Activation::relu) return at::threshold_backward(g, gate, 0);
  return at::gelu_backward(g, gate, activation == Activation::gelu ? "none" : "tanh");
}

// Returns x >> n, treating the 64 bits as unsigned.
inline at::Tensor shift_right(const at::Tensor& x, int64_t n) {
  return at::bitwise_right_shift(x, at::Scalar(n)).bitwise_and_(at::Scalar((int64_t{1} << (64 - n)) - 1));
}

// SplitMix64's finaliser (base/random.h, mix64) on a tensor; signed arithmetic wraps to the same bits.
inline at::Tensor mix64_tensor(at::Tensor x) {
  x = x + static_cast<int64_t>(0x9e3779b97f4a7c15ull);
  x = (x.bitwise_xor(shift_right(x, 30))) * static_cast<int64_t>(0xbf58476d1ce4e5b9ull);
  x = (x.bitwise_xor(shift_right(x, 27))) * static_cast<int64_t>(0x94d049bb133111ebull);
  return x.bitwise_xor(shift_right(x, 31));
}

// x [rows, cols], row_keys [rows]
inline at::Tensor drop_rows(const at::Tensor& x, const at::Tensor& row_keys, int64_t key, double p) {
  constexpr int64_t low32 = 0xffffffff;
  const int64_t cols = x.size(-1);
  const at::Tensor k = mix64_tensor(row_keys.unsqueeze(1).bitwise_xor(at::Scalar(key)));
  at::Tensor h = at::arange(cols, row_keys.options()).mul_(static_cast<int64_t>(kRandomStride)) +
                 k.bitwise_and(at::Scalar(low32));
  h.bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  h.mul_(static_cast<int64_t>(kRandomRound1)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(shift_right(k, 32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(15)));
  h.mul_(static_cast<int64_t>(kRandomRound2)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  const at::Tensor keep = h.ge(static_cast<int64_t>(mask_threshold(p)));
  const at::Tensor scaled = (x.to(at::kFloat) * static_cast<float>(1.0 / (1.0 - p))).to(x.scalar_type());
  return scaled.masked_fill_(keep.logical_not(), 0.0);
}

// Works on a few rows at a time: the hashes of an element take 16 bytes, several times its own size.
inline at::Tensor dropout(const at::Tensor& x, const at::Tensor& row_keys, int64_t key, double p) {
  constexpr int64_t kPiece = 1 << 22;
  const at::Tensor rows = x.reshape({-1, x.size(-1)}), keys = row_keys.reshape({-1});
  const int64_t step = std::max<int64_t>(1, kPiece / std::max<int64_t>(rows.size(1), 1));
  if (step >= rows.size(0)) return drop_rows(rows, keys, key, p).view(x.sizes());
  at::Tensor out = at::empty(rows.sizes(), x.options());
  for (int64_t row = 0; row < rows.size(0); row += step) {
    const int64_t count = std::min(step, rows.size(0) - row);
    out.narrow(0, row, count)
        .copy_(drop_rows(rows.narrow(0, row, count), keys.narrow(0, row, count), key, p));
  }
  return out.view(x.sizes());
}

// Sums [H, R, K] along its diagonals: [H, R + K - 1], in one order, unlike index_add_ on a GPU. Each row,
// last one first, gets R zeros behind it; read as rows that are one shorter, each begins one further to the
// left than the one before.
inline at::Tensor sum_by_distance(const at::Tensor& x) {
  const int64_t rows = x.size(1), distances = rows + x.size(2) - 1;
  const at::Tensor wide = at::constant_pad_nd(x.flip(1), {0, rows});
  return wide.flatten(1).narrow(1, 0, rows * distances).view({-1, rows, distances}).sum(1);
}

// Returns the index of (row, key) in a bias of distances: int64 [R, K].
inline at::Tensor distance_index(const at::Tensor& scores) {
  const int64_t rows = scores.size(2), keys = scores.size(3);
  const at::TensorOptions ints = scores.options().dtype(at::kLong);
  return at::arange(keys, ints).unsqueeze(0) - at::arange(rows, ints).unsqueeze(1) + (rows - 1);
}

inline at::Tensor attention_weights(const at::Tensor& scores, const OptionalTensor& bias,
                                    const OptionalTensor& lengths, const OptionalTensor& row_keys,
                                    const WeightsOptions& options) {
  const auto& [scale, visible, key, p] = options;
  const int64_t rows = scores.size(2), keys = scores.size(3);
  const at::TensorOptions ints = scores.options().dtype(at::kLong);
  at::Tensor s = scores * scale;
  if (bias) s.add_(bias->index_select(1, distance_index(scores).flatten()).view({1, -1, rows, keys}));
  at::Tensor hidden = at::arange(keys, ints)
                          .unsqueeze(0)
                          .ge(at::arange(visible, visible + rows, ints).unsqueeze(1));  // [R, K]
  if (lengths) hidden = hidden.logical_or(at::arange(keys, ints).ge(lengths->view({-1, 1, 1, 1})));
  s.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
  const at::Tensor weights = at::softmax(s, -1, at::kFloat).to(scores.scalar_type());
  if (p == 0) return weights;
  return dropout(weights, keys_of_heads(*row_keys, scores.size(1)), key, p);
}

inline std::tuple<at::Tensor, at::Tensor> attention_weights_backward(const at::Tensor& grad,
                                                                     const at::Tensor& weights,
                                                                     const OptionalTensor& row_keys,
                                                                     const WeightsOptions& options,
                                                                     bool needs_bias) {
  const auto& [scale, visible, key, p] = options;
  at::Tensor g = grad;
  if (p > 0) {
    g = dropout(grad, keys_of_heads(*row_keys, weights.size(1)), key, p);
  }
  const at::Tensor w = weights.to(at::kFloat), product = g.to(at::kFloat) * w;
  const at::Tensor g_scores = product - w * product.sum(-1, /*keepdim=*/true);
  at::Tensor g_bias;
  if (needs_bias) {
    g_bias = sum_by_distance(g_scores.sum(0)).unsqueeze(0);
  }
  return {(g_scores * scale).to(weights.scalar_type()), g_bias};
}

inline at::Tensor map_on(const at::Tensor& like, const float* values, int64_t count) {
  return at::from_blob(const_cast<float*>(values), {count}, at::kFloat).to(like.device());
}

// The values first - first % 64 to the end of the last block.
inline at::Tensor dequantise(const Nf4Tensor& tensor, int64_t first, int64_t count, at::ScalarType type) {
  const at::Tensor &codes = tensor.codes, &scales = tensor.scales, &nested_scales = tensor.nested_scales;
  const DynamicMap of_scales = dynamic_map(true);
  const int64_t block = first / kNf4Block, end = first + count;
  const int64_t blocks = (end + kNf4Block - 1) / kNf4Block - block, begin = block * kNf4Block;
  const at::Tensor bytes =
      codes.narrow(0, begin / 2, std::min(blocks * kNf4Block / 2, codes.numel() - begin / 2));
  const at::Tensor both = at::stack({at::bitwise_right_shift(bytes, 4), bytes.bitwise_and(15)}, 1).view({-1});
  const at::Tensor values = map_on(codes, kNf4Values.data(), 16).index_select(0, both.to(at::kInt));
  at::Tensor scale = scales.narrow(0, block, blocks);
  if (nested_scales.defined()) {
    const at::Tensor group = at::arange(block, block + blocks, scale.options().dtype(at::kLong));
    scale = map_on(codes, of_scales.data(), 256).index_select(0, scale.to(at::kInt)) *
            nested_scales.index_select(0, at::floor_divide(group, kNf4ScaleBlock));
    scale.add_(tensor.offset);
  }
  const at::Tensor each = scale.repeat_interleave(kNf4Block).narrow(0, 0, values.numel());
  return (values * each).narrow(0, first - begin, count).to(type);
}

inline at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const int64_t half = cos.size(-1), rest = x.size(-1) - 2 * half;
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor out = empty_by_position(x);
  at::Tensor y1 = out.narrow(-1, 0, half), y2 = out.narrow(-1, half, half);
  const int direction = back ? -1 : 1;
  at::mul_out(y1, x1, cos).sub_(x2 * sin, direction);
  at::mul_out(y2, x2, cos).add_(x1 * sin, direction);
  if (rest > 0) out.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
  return out;
}

}  // namespace trainer::reference
