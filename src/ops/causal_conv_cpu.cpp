// The loops of causal convolutions on the CPU.
#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "device/op.h"
#include "ops/causal_conv.h"

namespace trainer {
namespace {

constexpr int64_t kConvChannels = 256;  // at a time: sums stay in the nearest cache

// sums = the sum of the weights [width, channels] times this token and those before it, `seen` in all.
template <class T>
TRAINER_INLINE void conv_sums(const T* __restrict__ x, int64_t row, const float* __restrict__ weight,
                              int64_t weight_row, float* __restrict__ sums, int64_t seen, int64_t channels) {
  for (int64_t c = 0; c < channels; c++) sums[c] = weight[c] * static_cast<float>(x[c]);
  for (int64_t back = 1; back < seen; back++) {
    const T* const __restrict__ from = x - back * row;
    const float* const __restrict__ by = weight + back * weight_row;
    for (int64_t c = 0; c < channels; c++) sums[c] += by[c] * static_cast<float>(from[c]);
  }
}

template <class T>
TRAINER_VECTORISED void conv_token(const T* __restrict__ x, const float* __restrict__ weight,
                                   T* __restrict__ out, int64_t seen, int64_t channels, bool silu) {
  float sums[kConvChannels];
  for (int64_t first = 0; first < channels; first += kConvChannels) {
    const int64_t count = std::min(kConvChannels, channels - first);
    conv_sums(x + first, channels, weight + first, channels, sums, seen, count);
    if (silu) {
      for (int64_t c = 0; c < count; c++) {
        const float rounded_sum = static_cast<float>(static_cast<T>(sums[c]));
        out[first + c] = static_cast<T>(rounded_sum * fast_sigmoid(rounded_sum));
      }
    } else {
      for (int64_t c = 0; c < count; c++) out[first + c] = static_cast<T>(sums[c]);
    }
  }
}

// The gradients of a run for some channels, from the last token to the first: that of a token is complete
// when those of the `width` - 1 tokens after it are known, which `ring` keeps.
template <class T>
TRAINER_VECTORISED void conv_run_back(const T* __restrict__ g, const T* __restrict__ x,
                                      const float* __restrict__ weight, T* __restrict__ gx,
                                      float* __restrict__ g_weight, float* __restrict__ ring, int64_t row,
                                      int64_t tokens, int64_t width, int64_t channels, bool silu) {
  float sums[kConvChannels];
  for (int64_t t = tokens - 1; t >= 0; t--) {
    const int64_t seen = std::min(width, t + 1), at = t * row;
    float* const __restrict__ own = ring + (t % width) * kConvChannels;
    if (silu) {
      conv_sums(x + at, row, weight, row, sums, seen, channels);
      for (int64_t c = 0; c < channels; c++) {
        const float rounded_sum = static_cast<float>(static_cast<T>(sums[c]));
        float s, ds;
        fast_sigmoid(rounded_sum, s, ds);
        own[c] = static_cast<float>(g[at + c]) * (s + rounded_sum * ds);
      }
    } else {
      for (int64_t c = 0; c < channels; c++) own[c] = static_cast<float>(g[at + c]);
    }
    for (int64_t c = 0; c < channels; c++) sums[c] = weight[c] * own[c];
    for (int64_t ahead = 1; ahead < width && t + ahead < tokens; ahead++) {
      const float* const __restrict__ later = ring + ((t + ahead) % width) * kConvChannels;
      const float* const __restrict__ by = weight + ahead * row;
      for (int64_t c = 0; c < channels; c++) sums[c] += by[c] * later[c];
    }
    for (int64_t c = 0; c < channels; c++) gx[at + c] = static_cast<T>(sums[c]);
    for (int64_t back = 0; back < seen && g_weight != nullptr; back++) {
      const T* const __restrict__ from = x + at - back * row;
      float* const __restrict__ to = g_weight + back * row;
      for (int64_t c = 0; c < channels; c++) to[c] += own[c] * static_cast<float>(from[c]);
    }
  }
}

// The rows in reverse order. (at::flip has no form for a plan on meta.)
at::Tensor reversed(const at::Tensor& rows) {
  return rows.index_select(0, at::arange(rows.size(0) - 1, -1, -1, rows.options().dtype(at::kLong)));
}

// The weights as fp32 [width, channels]; the first row belongs to the token itself.
at::Tensor by_distance(const at::Tensor& weight) { return reversed(weight.squeeze(1).to(at::kFloat).t()); }

}  // namespace

at::Tensor causal_conv_cpu(const at::Tensor& input, const at::Tensor& weight, const TokenRuns& runs,
                           bool silu) {
  const at::Tensor x = input.contiguous(), by = by_distance(weight);
  const int64_t channels = x.size(1), width = by.size(0);
  at::Tensor out = zeros_in_padding(x, runs);
  if (x.is_meta()) return out;
  with_element_type(x, "causal_conv", [&]<class T>() {
    const T* const from = x.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    const float* const weights = by.const_data_ptr<float>();
    const int64_t grain = std::max<int64_t>(1, (1 << 14) / channels);
    for (const TokenRun& run : runs) {
      at::parallel_for(0, run.tokens, grain, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; t++) {
          const int64_t at = (run.first + t) * channels;
          conv_token(from + at, weights, to + at, std::min(width, t + 1), channels, silu);
        }
      });
    }
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> causal_conv_backward_cpu(const at::Tensor& grad, const at::Tensor& input,
                                                            const at::Tensor& weight, const TokenRuns& runs,
                                                            bool silu, bool needs_weight) {
  const at::Tensor g = grad.contiguous(), x = input.contiguous(), by = by_distance(weight);
  const int64_t channels = x.size(1), width = by.size(0);
  at::Tensor gx = zeros_in_padding(x, runs), sums;
  if (needs_weight) sums = at::zeros_like(by);
  if (!x.is_meta()) {
    with_element_type(x, "causal_conv_backward", [&]<class T>() {
      const T *from = x.const_data_ptr<T>(), *gradient = g.const_data_ptr<T>();
      T* const to = gx.mutable_data_ptr<T>();
      const float* const weights = by.const_data_ptr<float>();
      float* const sum = needs_weight ? sums.mutable_data_ptr<float>() : nullptr;
      const int64_t parts = (channels + kConvChannels - 1) / kConvChannels;
      at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
        std::vector<float> ring(static_cast<size_t>(width * kConvChannels));
        for (int64_t part = begin; part < end; part++) {
          const int64_t c = part * kConvChannels, count = std::min(kConvChannels, channels - c);
          for (const TokenRun& run : runs) {
            const int64_t at = run.first * channels + c;
            conv_run_back(gradient + at, from + at, weights + c, to + at, sum == nullptr ? nullptr : sum + c,
                          ring.data(), channels, run.tokens, width, count, silu);
          }
        }
      });
    });
  }
  if (!needs_weight) return {gx, at::Tensor()};
  return {gx, reversed(sums).t().unsqueeze(1).to(weight.scalar_type())};
}

}  // namespace trainer
