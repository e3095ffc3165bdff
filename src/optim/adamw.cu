// AdamW's update (src/optim/adamw_cpu.cpp) of many tensors. Open: Weight, Gradient, State.
#include "optim/updates.cuh"

struct Coefficients {
  float keep, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, epsilon;
};

// A tensor. master: nullptr, or the values that are updated; then the weight gets their rounded values.
struct AdamwRow {
  Weight* weight;
  const Gradient* gradient;
  State *exp_avg, *exp_avg_sq;
  float* master;
  unsigned long long key;
  long long count;
  Coefficients coefficients;
  int first_block;
};

// Elements first .. first + width - 1.
template <int width>
DEVICE void update_elements(const AdamwRow& t, long long first, float scale) {
  const Coefficients& c = t.coefficients;
  const unsigned low = static_cast<unsigned>(t.key), high = static_cast<unsigned>(t.key >> 32);
  const auto gradients = load<width>(t.gradient + first);
  auto weights = load<width>(t.weight + first);
  auto averages = load<width>(t.exp_avg + first), squares = load<width>(t.exp_avg_sq + first);
  Pack<float, width> masters = {};
  if (t.master != nullptr) masters = load<width>(t.master + first);
  for (int k = 0; k < width; k++) {
    const unsigned index = static_cast<unsigned>(first) + k;
    const unsigned bits = random_bits(low, high, index), more_bits = random_bits(high, low, index);
    const float g = wide(gradients.at[k]) * scale, m0 = wide(averages.at[k]);
    const float m = m0 + (g - m0) * c.one_minus_beta1;
    const float v = wide(squares.at[k]) * c.beta2 + g * g * c.one_minus_beta2;
    const float w = (t.master != nullptr ? masters.at[k] : wide(weights.at[k])) * c.keep;
    const float next = w - c.step_size * (m / (sqrtf(v) / c.root_correction + c.epsilon));
    averages.at[k] = rounded_by<State>(m, more_bits);
    squares.at[k] = rounded_by<State>(v, more_bits >> 16);
    masters.at[k] = next;
    weights.at[k] = t.master != nullptr ? narrow<Weight>(next) : rounded_by<Weight>(next, bits);
  }
  store<width>(t.exp_avg + first, averages);
  store<width>(t.exp_avg_sq + first, squares);
  if (t.master != nullptr) store<width>(t.master + first, masters);
  store<width>(t.weight + first, weights);
}

// Works on row_count rows of the table, from first_row on.
KERNEL adamw_update(const AdamwRow* table, int first_row, int row_count, int block_elements,
                    const float* gradient_scale) {
  const AdamwRow* const rows = table + first_row;
  const AdamwRow t = rows[row_of_block(rows, row_count)];
  const bool aligned = is_aligned(t.weight) && is_aligned(t.gradient) && is_aligned(t.exp_avg) &&
                       is_aligned(t.exp_avg_sq) && is_aligned(t.master);
  const Range range = range_of_block(t, block_elements, aligned);
  const float scale = *gradient_scale;
  for (long long i = range.first + 4 * threadIdx.x; i < range.wide_last; i += 4 * blockDim.x) {
    update_elements<4>(t, i, scale);
  }
  for (long long i = range.wide_last + threadIdx.x; i < range.last; i += blockDim.x) {
    update_elements<1>(t, i, scale);
  }
}
