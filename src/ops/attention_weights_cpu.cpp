// The loops between the products of T5's attention on the CPU.
#include <algorithm>
#include <bit>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/dropout_mask.h"
#include "base/vector_math.h"
#include "device/op.h"
#include "ops/attention_weights.h"
#include "ops/dropout.h"

namespace trainer {
namespace {

// Rounds x to T, without the branch for NaN that prevents the compiler from vectorising a reduction.
template <class T>
TRAINER_INLINE float rounded(float x) {
  return x;
}
template <>
TRAINER_INLINE float rounded<at::BFloat16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

template <class T, bool biased>
TRAINER_INLINE float score_of(const T* scores, const T* bias, int64_t c, float scale) {
  const float s = rounded<T>(static_cast<float>(scores[c]) * scale);
  return biased ? rounded<T>(s + static_cast<float>(bias[c])) : s;
}

// One row: the first `visible` of its `keys` count, the others become 0. mask: nullptr without dropout.
template <class T, bool biased>
TRAINER_VECTORISED void weights_row(const T* __restrict__ scores, const T* __restrict__ bias,
                                    T* __restrict__ out, int64_t visible, int64_t keys, float scale,
                                    const RowMask* mask) {
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (int64_t c = 0; c < visible; c++) {
    const float s = score_of<T, biased>(scores, bias, c, scale);
    most = s > most ? s : most;
  }
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < visible; c++) sum += fast_exp(score_of<T, biased>(scores, bias, c, scale) - most);
  const float inverse = 1.0f / sum;
  for (int64_t c = 0; c < visible; c++) {
    out[c] = static_cast<T>(fast_exp(score_of<T, biased>(scores, bias, c, scale) - most) * inverse);
  }
  if (mask != nullptr) {
    const RowMask m = *mask;
    for (int64_t c = 0; c < visible; c++) {
      out[c] = m.keeps(c) ? static_cast<T>(static_cast<float>(out[c]) * m.scale) : static_cast<T>(0.0f);
    }
  }
  for (int64_t c = visible; c < keys; c++) out[c] = static_cast<T>(0.0f);
}

// g is the gradient of the dropped-out weight. Adds the gradient before the scale to by_distance, unless that
// is nullptr.
template <class T, bool dropped>
TRAINER_VECTORISED void weights_row_grad(const T* __restrict__ g, const T* __restrict__ weights,
                                         T* __restrict__ out, float* __restrict__ by_distance, int64_t keys,
                                         float scale, RowMask m) {
  const auto through = [&](int64_t c) __attribute__((always_inline)) {
    if constexpr (!dropped) return static_cast<float>(g[c]);
    return m.keeps(c) ? rounded<T>(static_cast<float>(g[c]) * m.scale) : 0.0f;
  };
  float along = 0.0f;
#pragma omp simd reduction(+ : along)
  for (int64_t c = 0; c < keys; c++) along += through(c) * static_cast<float>(weights[c]);
  if (by_distance != nullptr) {
    for (int64_t c = 0; c < keys; c++) {
      const float gradient = static_cast<float>(weights[c]) * (through(c) - along);
      by_distance[c] += gradient;
      out[c] = static_cast<T>(gradient * scale);
    }
  } else {
    for (int64_t c = 0; c < keys; c++) {
      out[c] = static_cast<T>(static_cast<float>(weights[c]) * (through(c) - along) * scale);
    }
  }
}

// The mask of row `row` of `pair` (sample, head).
RowMask mask_of(const int64_t* row_keys, int64_t pair, int64_t row, int64_t heads, int64_t rows, int64_t key,
                double p) {
  const int64_t sample = pair / heads, head = pair % heads;
  return {row_keys[sample * rows + row] + dropout_key_of_head(head), key, p};
}

}  // namespace

at::Tensor attention_weights_cpu(const at::Tensor& scores_, const OptionalTensor& bias_,
                                 const OptionalTensor& lengths_, const OptionalTensor& row_keys_,
                                 const WeightsOptions& options) {
  const at::Tensor scores = scores_.contiguous(), bias = contiguous_or_none(bias_),
                   lengths = contiguous_or_none(lengths_), row_keys = contiguous_or_none(row_keys_);
  const int64_t heads = scores.size(1), rows = scores.size(2), keys = scores.size(3);
  at::Tensor out = at::empty_like(scores);
  if (scores.is_meta()) return out;
  const int64_t* length = lengths.defined() ? lengths.const_data_ptr<int64_t>() : nullptr;
  const int64_t* keys_of_rows = options.p > 0 ? row_keys.const_data_ptr<int64_t>() : nullptr;
  with_element_type(scores, "attention_weights", [&]<class T>() {
    const T* from = scores.const_data_ptr<T>();
    const T* bias_from = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
    T* to = out.mutable_data_ptr<T>();
    const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(keys, 1));
    at::parallel_for(0, scores.size(0) * heads * rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t pair = i / rows, row = i % rows;
        int64_t seen = std::min(keys, options.visible + row);
        if (length != nullptr) seen = std::min(seen, length[pair / heads]);
        const RowMask mask = options.p > 0
                                 ? mask_of(keys_of_rows, pair, row, heads, rows, options.key, options.p)
                                 : RowMask(0, 0, 0.0);
        const RowMask* with = options.p > 0 ? &mask : nullptr;
        if (bias_from != nullptr) {
          const T* row_bias = bias_from + (pair % heads) * (rows + keys - 1) + rows - 1 - row;
          weights_row<T, true>(from + i * keys, row_bias, to + i * keys, seen, keys,
                               static_cast<float>(options.scale), with);
        } else {
          weights_row<T, false>(from + i * keys, nullptr, to + i * keys, seen, keys,
                                static_cast<float>(options.scale), with);
        }
      }
    });
  });
  return out;
}

// One after the other.
std::tuple<at::Tensor, at::Tensor> attention_weights_both_cpu(const at::Tensor& scores,
                                                              const OptionalTensor& bias,
                                                              const OptionalTensor& lengths,
                                                              const OptionalTensor& row_keys,
                                                              const WeightsOptions& options) {
  WeightsOptions without = options;
  without.p = 0.0;
  const at::Tensor before = attention_weights(scores, bias, lengths, row_keys, without);
  const at::Tensor keys = keys_of_heads(*row_keys, scores.size(1));
  return {dropout_apply(before, keys, static_cast<uint64_t>(options.key), options.p), before};
}

void add_by_bucket_cpu(const at::Tensor& g_bias, const at::Tensor& by_distance, const at::Tensor& buckets,
                       bool first) {
  at::Tensor sum = g_bias;
  if (first) sum.zero_();
  sum.index_add_(0, buckets, by_distance.sum(0).t());
}

// A thread takes whole (sample, head) pairs, so that each sum over distances has a fixed order.
std::tuple<at::Tensor, at::Tensor> attention_weights_backward_cpu(const at::Tensor& grad,
                                                                  const at::Tensor& weights_,
                                                                  const OptionalTensor& row_keys_,
                                                                  const WeightsOptions& options,
                                                                  bool needs_bias) {
  const at::Tensor g = grad.contiguous(), weights = weights_.contiguous(),
                   row_keys = contiguous_or_none(row_keys_);
  const int64_t batch = weights.size(0), heads = weights.size(1), rows = weights.size(2),
                keys = weights.size(3), distances = rows + keys - 1;
  at::Tensor out = at::empty_like(weights), g_bias;
  if (needs_bias) g_bias = at::zeros({batch, heads, distances}, weights.options().dtype(at::kFloat));
  if (weights.is_meta()) return {out, g_bias};
  const int64_t* keys_of_rows = options.p > 0 ? row_keys.const_data_ptr<int64_t>() : nullptr;
  float* sums = needs_bias ? g_bias.mutable_data_ptr<float>() : nullptr;
  with_element_type(weights, "attention_weights_backward", [&]<class T>() {
    const T *from = g.const_data_ptr<T>(), *weight = weights.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    at::parallel_for(0, batch * heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t pair = begin; pair < end; pair++) {
        for (int64_t row = 0; row < rows; row++) {
          const int64_t at = (pair * rows + row) * keys;
          float* by_distance = sums != nullptr ? sums + pair * distances + rows - 1 - row : nullptr;
          if (options.p > 0) {
            weights_row_grad<T, true>(from + at, weight + at, to + at, by_distance, keys,
                                      static_cast<float>(options.scale),
                                      mask_of(keys_of_rows, pair, row, heads, rows, options.key, options.p));
          } else {
            weights_row_grad<T, false>(from + at, weight + at, to + at, by_distance, keys,
                                       static_cast<float>(options.scale), RowMask(0, 0, 0.0));
          }
        }
      }
    });
  });
  return {out, g_bias};
}

}  // namespace trainer
