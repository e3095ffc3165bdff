// The update of 8-bit AdamW (src/optim/adamw_8bit_cpu.cpp) of many tensors. Open: Weight, Gradient.
#include "optim/updates.cuh"

struct Coefficients8bit {
  float keep, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, epsilon;
};

// A tensor. master: nullptr, or the values that are updated; then the weight gets their rounded values.
struct Adamw8bitRow {
  Weight* weight;
  const Gradient* gradient;
  unsigned char *exp_avg, *exp_avg_sq;
  float *exp_avg_absmax, *exp_avg_sq_absmax;
  float* master;
  unsigned long long key;
  long long count;
  Coefficients8bit coefficients;
  int first_block;
};

// As in src/optim/moment_codes.h.
struct MomentCodes {
  float values[256], limits[256];
};

// The number of limits that are at most x.
DEVICE unsigned char code_of(const MomentCodes& codes, float x) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2) {
    if (x >= codes.limits[code + step - 1]) code += step;
  }
  return static_cast<unsigned char>(code);
}

// A warp works on 256 elements with one scale, a thread on eight of them.
constexpr int kScaled = 256, kOfThread = 8;

DEVICE float most_over_warp(float x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x = Most::of(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

DEVICE float inverse_scale(float absmax) { return absmax >= 1.17549435e-38f ? 1.0f / absmax : 0.0f; }

// Eight elements. With `whole`, four are moved at once; otherwise only the first `count` are moved.
template <bool whole, class T>
DEVICE void fetch(const T* from, int count, T* to) {
  if (whole) {
    for (int k = 0; k < kOfThread; k += 4) {
      const auto pack = load<4>(from + k);
      for (int n = 0; n < 4; n++) to[k + n] = pack.at[n];
    }
  } else {
    for (int k = 0; k < kOfThread; k++) {
      if (k < count) to[k] = from[k];
    }
  }
}
template <bool whole, class T>
DEVICE void put(const T* from, int count, T* to) {
  if (whole) {
    for (int k = 0; k < kOfThread; k += 4) {
      Pack<T, 4> pack;
      for (int n = 0; n < 4; n++) pack.at[n] = from[k + n];
      store<4>(to + k, pack);
    }
  } else {
    for (int k = 0; k < kOfThread; k++) {
      if (k < count) to[k] = from[k];
    }
  }
}

// The elements that have the scale number `scaled`. All threads of a warp call it.
template <bool whole>
DEVICE void update_scaled(const Adamw8bitRow& t, long long scaled, const MomentCodes* maps, float scale) {
  const Coefficients8bit& c = t.coefficients;
  const unsigned low = static_cast<unsigned>(t.key), high = static_cast<unsigned>(t.key >> 32);
  const long long first = scaled * kScaled + kOfThread * (threadIdx.x % 32);
  const long long left = t.count - first;
  const int count = left < 0 ? 0 : left < kOfThread ? static_cast<int>(left) : kOfThread;
  Weight weights[kOfThread] = {};
  Gradient gradients[kOfThread] = {};
  unsigned char codes[kOfThread] = {}, codes_sq[kOfThread] = {};
  float masters[kOfThread] = {}, averages[kOfThread], squares[kOfThread];
  fetch<whole>(t.weight + first, count, weights);
  fetch<whole>(t.gradient + first, count, gradients);
  fetch<whole>(t.exp_avg + first, count, codes);
  fetch<whole>(t.exp_avg_sq + first, count, codes_sq);
  if (t.master != nullptr) fetch<whole>(t.master + first, count, masters);
  const float absmax = t.exp_avg_absmax[scaled], absmax_sq = t.exp_avg_sq_absmax[scaled];
  float most = 0.0f, most_sq = 0.0f;
  for (int k = 0; k < kOfThread; k++) {
    const unsigned bits = random_bits(low, high, static_cast<unsigned>(first) + k);
    const float g = wide(gradients[k]) * scale;
    const float m = maps[0].values[codes[k]] * absmax * c.beta1 + c.one_minus_beta1 * g;
    const float v = maps[1].values[codes_sq[k]] * absmax_sq * c.beta2 + c.one_minus_beta2 * g * g;
    averages[k] = m;
    squares[k] = v;
    if (k < count) {
      most = Most::of(most, m < 0.0f ? -m : m);
      most_sq = Most::of(most_sq, v);
    }
    const float w = t.master != nullptr ? masters[k] : wide(weights[k]);
    const float next = (w - c.step_size * (m / (sqrtf(v) + c.epsilon))) * c.keep;
    masters[k] = next;
    weights[k] = t.master != nullptr ? narrow<Weight>(next) : rounded_by<Weight>(next, bits);
  }
  most = most_over_warp(most);
  most_sq = most_over_warp(most_sq);
  const float inverse = inverse_scale(most), inverse_sq = inverse_scale(most_sq);
  for (int k = 0; k < kOfThread; k++) {
    codes[k] = code_of(maps[0], averages[k] * inverse);
    codes_sq[k] = code_of(maps[1], squares[k] * inverse_sq);
  }
  put<whole>(codes, count, t.exp_avg + first);
  put<whole>(codes_sq, count, t.exp_avg_sq + first);
  if (t.master != nullptr) put<whole>(masters, count, t.master + first);
  put<whole>(weights, count, t.weight + first);
  if (threadIdx.x % 32 == 0) {
    t.exp_avg_absmax[scaled] = most;
    t.exp_avg_sq_absmax[scaled] = most_sq;
  }
}

// Works on row_count rows of the table, from first_row on. codes: of both moments. block_elements is a
// multiple of 256.
KERNEL adamw_8bit_update(const Adamw8bitRow* table, int first_row, int row_count, int block_elements,
                         const MomentCodes* codes, const float* gradient_scale) {
  __shared__ MomentCodes maps[2];
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) {
    for (int which = 0; which < 2; which++) {
      maps[which].values[i] = codes[which].values[i];
      maps[which].limits[i] = codes[which].limits[i];
    }
  }
  __syncthreads();
  const Adamw8bitRow* const rows = table + first_row;
  const Adamw8bitRow t = rows[row_of_block(rows, row_count)];
  const bool aligned = is_aligned(t.weight) && is_aligned(t.gradient) && is_aligned(t.exp_avg) &&
                       is_aligned(t.exp_avg_sq) && is_aligned(t.master);
  const Range range = range_of_block(t, block_elements, aligned);
  const float scale = *gradient_scale;
  for (long long first = range.first + kScaled * (threadIdx.x / 32); first < range.last;
       first += kScaled * (blockDim.x / 32)) {
    if (aligned && first + kScaled <= range.last) {
      update_scaled<true>(t, first / kScaled, maps, scale);
    } else {
      update_scaled<false>(t, first / kScaled, maps, scale);
    }
  }
}
