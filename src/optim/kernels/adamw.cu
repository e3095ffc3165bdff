// AdamW's update (src/optim/adamw_update.cpp). Defined at compilation: Weight, Gradient, State, kWidth.
#include "device/kernels/prelude.cuh"

struct Coefficients {
  float keep, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, epsilon;
};

// 32 random bits of an element.
DEVICE unsigned random_bits(unsigned low, unsigned high, unsigned index) {
  unsigned h = index * 0x9e3779b1u + low;
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= high;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ (h >> 16);
}

// fp32 to T. bf16 rounds up with the probability of the part that is cut off. Infinities and NaN stay as they
// are.
template <class T>
DEVICE T rounded_by(float value, unsigned /*bits*/) {
  return value;
}
template <>
DEVICE bf16 rounded_by<bf16>(float value, unsigned bits) {
  const unsigned pattern = __float_as_uint(value);
  const bool finite = (pattern & 0x7f800000u) != 0x7f800000u;
  return {static_cast<unsigned short>((finite ? pattern + (bits & 0xffffu) : pattern) >> 16)};
}

// master: nullptr, or the values that are updated; then the weight gets their rounded values. A thread
// handles kWidth elements; count is a multiple of kWidth.
KERNEL adamw_update(Weight* weight, const Gradient* gradient, State* exp_avg, State* exp_avg_sq,
                    float* master, const float* gradient_scale, Coefficients c, unsigned long long key,
                    long long count) {
  const long long first = thread_index() * kWidth;
  if (first >= count) return;
  const unsigned low = static_cast<unsigned>(key), high = static_cast<unsigned>(key >> 32);
  const float scale = *gradient_scale;
  const auto gradients = load<kWidth>(gradient + first);
  auto weights = load<kWidth>(weight + first);
  auto averages = load<kWidth>(exp_avg + first), squares = load<kWidth>(exp_avg_sq + first);
  Pack<float, kWidth> masters = {};
  if (master != nullptr) masters = load<kWidth>(master + first);
  for (int k = 0; k < kWidth; k++) {
    const unsigned index = static_cast<unsigned>(first) + k;
    const unsigned bits = random_bits(low, high, index), more_bits = random_bits(high, low, index);
    const float g = wide(gradients.at[k]) * scale, m0 = wide(averages.at[k]);
    const float m = m0 + (g - m0) * c.one_minus_beta1;
    const float v = wide(squares.at[k]) * c.beta2 + g * g * c.one_minus_beta2;
    const float w = (master != nullptr ? masters.at[k] : wide(weights.at[k])) * c.keep;
    const float next = w - c.step_size * (m / (sqrtf(v) / c.root_correction + c.epsilon));
    averages.at[k] = rounded_by<State>(m, more_bits);
    squares.at[k] = rounded_by<State>(v, more_bits >> 16);
    masters.at[k] = next;
    weights.at[k] = master != nullptr ? narrow<Weight>(next) : rounded_by<Weight>(next, bits);
  }
  store<kWidth>(exp_avg + first, averages);
  store<kWidth>(exp_avg_sq + first, squares);
  if (master != nullptr) store<kWidth>(master + first, masters);
  store<kWidth>(weight + first, weights);
}
