// The loops of RMSNorm on the CPU over rows that lie one behind the other. For files compiled as
// vector_math.h says.
#pragma once

#include <cmath>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/vector_math.h"
#include "device/op.h"

namespace trainer {
namespace {

template <bool plus_one>
[[gnu::always_inline]] inline float factor_of(float weight) {
  return plus_one ? 1.0f + weight : weight;
}

// Returns the normalised value as it is multiplied by the weight.
template <class T, bool plus_one>
[[gnu::always_inline]] inline float normalised(float x, float rstd) {
  return plus_one ? x * rstd : static_cast<float>(static_cast<T>(x * rstd));
}

template <class T, bool plus_one>
TRAINER_VECTORISED void norm_rows(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ y,
                                  float* __restrict__ rstd, int64_t rows, int64_t cols, float epsilon) {
  for (int64_t row = 0; row < rows; row++, x += cols, y += cols) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; c++) {
      const float v = static_cast<float>(x[c]);
      sum += v * v;
    }
    const float r = 1.0f / std::sqrt(sum / static_cast<float>(cols) + epsilon);
    rstd[row] = r;
    for (int64_t c = 0; c < cols; c++) {
      const float n = normalised<T, plus_one>(static_cast<float>(x[c]), r);
      y[c] = static_cast<T>(n * factor_of<plus_one>(static_cast<float>(weight[c])));
    }
  }
}

// n = x rstd: gx = rstd (g w - n mean(g w n)).
template <class T, bool plus_one>
TRAINER_VECTORISED void norm_rows_grad_x(const T* __restrict__ g, const T* __restrict__ x,
                                         const T* __restrict__ weight, const float* __restrict__ rstd,
                                         T* __restrict__ gx, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; row++, g += cols, x += cols, gx += cols) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; c++) {
      sum += static_cast<float>(g[c]) * factor_of<plus_one>(static_cast<float>(weight[c])) *
             static_cast<float>(x[c]);
    }
    const float r = rstd[row], along = sum * r * r / static_cast<float>(cols);
    for (int64_t c = 0; c < cols; c++) {
      const float gw = static_cast<float>(g[c]) * factor_of<plus_one>(static_cast<float>(weight[c]));
      gx[c] = static_cast<T>((gw - static_cast<float>(x[c]) * along) * r);
    }
  }
}

// Calls body.operator()<T, plus_one>().
template <class Body>
void with_kind(const at::Tensor& x, const char* name, bool plus_one, const Body& body) {
  with_element_type(x, name, [&]<class T>() {
    plus_one ? body.template operator()<T, true>() : body.template operator()<T, false>();
  });
}

}  // namespace
}  // namespace trainer
