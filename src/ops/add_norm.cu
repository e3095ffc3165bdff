// A residual sum and the norm of it (src/ops/add_norm.h). Open: Element, kWidth. Every step is rounded as in
// drop (dropout.cu), a sum, and norm_forward or norm_backward (rms_norm.cu), so that a recomputed block,
// which runs those, gives the same bits.
#include "ops/mask.cuh"
#include "ops/norm.cuh"

// h = x + dropout(y) and the norm of h; row_keys: nullptr without dropout. One block per row, here and in
// add_norm_backward. A thread reads only what it wrote itself.
KERNEL add_norm_forward(const Element* x, const Element* y, const Element* weight, const long long* row_keys,
                        Element* h, Element* n, float* rstd, int cols, float epsilon, int plus_one,
                        MaskOptions options) {
  const long long row = static_cast<long long>(blockIdx.x) * cols;
  const int first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  const RowMask mask(row_keys == nullptr ? 0 : row_keys[blockIdx.x], options);
  float sum = 0.0f;
  for (int c = first; c < cols; c += step) {
    const auto before = load<kWidth>(x + row + c), part = load<kWidth>(y + row + c);
    Pack<Element, kWidth> to;
    for (int k = 0; k < kWidth; k++) {
      float value = wide(part.at[k]);
      if (row_keys != nullptr) {
        value = mask.keeps(c + k) ? rounded<Element>(__fmul_rn(value, mask.scale)) : 0.0f;
      }
      to.at[k] = narrow<Element>(__fadd_rn(wide(before.at[k]), value));
      sum += wide(to.at[k]) * wide(to.at[k]);
    }
    store<kWidth>(h + row + c, to);
  }
  const float r = 1.0f / sqrtf(over_block<Sum>(sum) / static_cast<float>(cols) + epsilon);
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
  for (int c = first; c < cols; c += step) {
    const auto from = load<kWidth>(h + row + c), by = load<kWidth>(weight + c);
    Pack<Element, kWidth> to;
    for (int k = 0; k < kWidth; k++) {
      to.at[k] = narrow<Element>(normalised(from.at[k], r, plus_one) * factor(by.at[k], plus_one));
    }
    store<kWidth>(n + row + c, to);
  }
}

// g: the gradient of the norm's result; g_h: the gradient of h from elsewhere, or nullptr. gx: of x; gy: of
// y, with dropout.
KERNEL add_norm_backward(const Element* g, const Element* g_h, const Element* h, const Element* weight,
                         const float* rstd, const long long* row_keys, Element* gx, Element* gy, int cols,
                         int plus_one, MaskOptions options) {
  const long long row = static_cast<long long>(blockIdx.x) * cols;
  const int first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  const RowMask mask(row_keys == nullptr ? 0 : row_keys[blockIdx.x], options);
  float sum = 0.0f;
  for (int c = first; c < cols; c += step) {
    const auto gradient = load<kWidth>(g + row + c), from = load<kWidth>(h + row + c),
               by = load<kWidth>(weight + c);
    for (int k = 0; k < kWidth; k++) {
      sum += wide(gradient.at[k]) * factor(by.at[k], plus_one) * wide(from.at[k]);
    }
  }
  const float r = rstd[blockIdx.x], along = over_block<Sum>(sum) * r * r / static_cast<float>(cols);
  for (int c = first; c < cols; c += step) {
    const auto gradient = load<kWidth>(g + row + c), from = load<kWidth>(h + row + c),
               by = load<kWidth>(weight + c);
    Pack<Element, kWidth> other = {}, to, to_part;
    if (g_h != nullptr) other = load<kWidth>(g_h + row + c);
    for (int k = 0; k < kWidth; k++) {
      const float g_normalised = wide(gradient.at[k]) * factor(by.at[k], plus_one);
      const float through = rounded<Element>((g_normalised - wide(from.at[k]) * along) * r);
      to.at[k] = narrow<Element>(g_h == nullptr ? through : __fadd_rn(wide(other.at[k]), through));
      to_part.at[k] = narrow<Element>(mask.keeps(c + k) ? wide(to.at[k]) * mask.scale : 0.0f);
    }
    store<kWidth>(gx + row + c, to);
    if (gy != nullptr) store<kWidth>(gy + row + c, to_part);
  }
}
