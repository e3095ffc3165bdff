// RMSNorm's arithmetic, shared by rms_norm.cu and the kernels that are fused with it.
#pragma once
#include "device/prelude.cuh"

// Returns the factor of the normalised value. Gemma's norm adds 1 to the weight and rounds only the product.
template <class T>
DEVICE float factor(T weight, int plus_one) {
  return plus_one ? 1.0f + wide(weight) : wide(weight);
}
template <class T>
DEVICE float normalised(T x, float rstd, int plus_one) {
  return plus_one ? wide(x) * rstd : rounded<T>(wide(x) * rstd);
}
