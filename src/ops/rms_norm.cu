// RMSNorm (src/ops/rms_norm.h). Open: Element, kWidth.
#include "ops/norm.cuh"

// One block per row, here and in norm_backward.
KERNEL norm_forward(const Element* x, const Element* weight, Element* y, float* rstd, int cols, float epsilon,
                    int plus_one) {
  const long long row = static_cast<long long>(blockIdx.x) * cols;
  const int first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  const float r = row_rstd<kWidth>(x + row, cols, epsilon);
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
  for (int c = first; c < cols; c += step) {
    const auto from = load<kWidth>(x + row + c), by = load<kWidth>(weight + c);
    Pack<Element, kWidth> to;
    for (int k = 0; k < kWidth; k++) {
      to.at[k] = narrow<Element>(normalised(from.at[k], r, plus_one) * factor(by.at[k], plus_one));
    }
    store<kWidth>(y + row + c, to);
  }
}

// n = x rstd: gx = rstd (g w - n mean(g w n)).
KERNEL norm_backward(const Element* g, const Element* x, const Element* weight, const float* rstd,
                     Element* gx, int cols, int plus_one) {
  const long long row = static_cast<long long>(blockIdx.x) * cols;
  const int first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  float sum = 0.0f;
  for (int c = first; c < cols; c += step) {
    const auto gradient = load<kWidth>(g + row + c), from = load<kWidth>(x + row + c),
               by = load<kWidth>(weight + c);
    for (int k = 0; k < kWidth; k++) {
      sum += wide(gradient.at[k]) * factor(by.at[k], plus_one) * wide(from.at[k]);
    }
  }
  const float r = rstd[blockIdx.x], along = over_block<Sum>(sum) * r * r / static_cast<float>(cols);
  for (int c = first; c < cols; c += step) {
    const auto gradient = load<kWidth>(g + row + c), from = load<kWidth>(x + row + c),
               by = load<kWidth>(weight + c);
    Pack<Element, kWidth> to;
    for (int k = 0; k < kWidth; k++) {
      const float g_normalised = wide(gradient.at[k]) * factor(by.at[k], plus_one);
      to.at[k] = narrow<Element>((g_normalised - wide(from.at[k]) * along) * r);
    }
    store<kWidth>(gx + row + c, to);
  }
}

// sums [blocks of rows, cols]: g n summed over the rows of block blockIdx.y; n as it was multiplied by the
// weight. One thread has a column to itself, so that every sum has a fixed order.
KERNEL norm_backward_weight(const Element* g, const Element* x, const float* rstd, float* sums,
                            long long rows, int cols, long long rows_per_block, int plus_one) {
  const int c = (blockIdx.x * blockDim.x + threadIdx.x) * kWidth;
  if (c >= cols) return;
  const long long first = blockIdx.y * rows_per_block;
  const long long last = first + rows_per_block < rows ? first + rows_per_block : rows;
  Pack<float, kWidth> sum = {};
  for (long long row = first; row < last; row++) {
    const auto gradient = load<kWidth>(g + row * cols + c), from = load<kWidth>(x + row * cols + c);
    const float r = rstd[row];
    for (int k = 0; k < kWidth; k++) {
      sum.at[k] += wide(gradient.at[k]) * normalised(from.at[k], r, plus_one);
    }
  }
  store<kWidth>(sums + static_cast<long long>(blockIdx.y) * cols + c, sum);
}
