// RMSNorm's arithmetic, shared by rms_norm.cu and the kernels that are fused with it.
#pragma once
#include "device/prelude.cuh"

// Returns the factor of the normalised value. Gemma's norm adds 1 to the weight and rounds only the product.
template <class T>
DEVICE float factor(T weight, int plus_one) {
  return plus_one ? 1.0f + wide(weight) : wide(weight);
}
// Returns 1 / sqrt(mean square + epsilon) of a block's row, to all of its threads.
template <int width, class T>
DEVICE float row_rstd(const T* row, int cols, float epsilon) {
  float sum = 0.0f;
  for (int c = threadIdx.x * width; c < cols; c += blockDim.x * width) {
    const auto from = load<width>(row + c);
    for (int k = 0; k < width; k++) sum += wide(from.at[k]) * wide(from.at[k]);
  }
  return 1.0f / sqrtf(over_block<Sum>(sum) / static_cast<float>(cols) + epsilon);
}
template <class T>
DEVICE float normalised(T x, float rstd, int plus_one) {
  return plus_one ? wide(x) * rstd : rounded<T>(wide(x) * rstd);
}
