#include "gemm/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dropout_mask.h"
#include "base/vector_math.h"

namespace trainer {
namespace {

TRAINER_VECTORISED float softmax_row(float* __restrict__ row, int64_t visible) {
  float most = -std::numeric_limits<float>::infinity(), sum = 0.0f;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < visible; i++) most = row[i] > most ? row[i] : most;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < visible; i++) {
    const float e = fast_exp(row[i] - most);
    row[i] = e;
    sum += e;
  }
  const float factor = 1.0f / sum;
  for (int64_t i = 0; i < visible; i++) row[i] *= factor;
  return most + std::log(sum);
}

TRAINER_VECTORISED void weights_row_of(float* __restrict__ row, int64_t visible, float sum) {
  for (int64_t i = 0; i < visible; i++) row[i] = fast_exp(row[i] - sum);
}

TRAINER_VECTORISED void score_gradient_row(float* __restrict__ gradient, const float* __restrict__ weights,
                                           int64_t visible, float mean, float scale) {
  for (int64_t i = 0; i < visible; i++) gradient[i] = scale * weights[i] * (gradient[i] - mean);
}

TRAINER_VECTORISED float product_of_row(const float* __restrict__ a, const float* __restrict__ b,
                                        int64_t columns) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < columns; i++) sum += a[i] * b[i];
  return sum;
}

TRAINER_VECTORISED void add_bias_to_row(float* __restrict__ row, const float* __restrict__ bias,
                                        int64_t visible) {
  for (int64_t i = 0; i < visible; i++) row[i] += bias[i];
}

TRAINER_VECTORISED void drop_weights_of_row(const float* weights, float* to, int64_t visible, RowMask mask) {
#pragma omp simd
  for (int64_t i = 0; i < visible; i++) to[i] = mask.drop(weights[i], i);
}

TRAINER_VECTORISED void biased_score_gradient_row(float* __restrict__ gradient,
                                                  const float* __restrict__ weights, int64_t visible,
                                                  float scale, float* __restrict__ by_distance) {
  float mean = 0.0f;
#pragma omp simd reduction(+ : mean)
  for (int64_t i = 0; i < visible; i++) mean += gradient[i] * weights[i];
  for (int64_t i = 0; i < visible; i++) {
    const float g = weights[i] * (gradient[i] - mean);
    by_distance[i] += g;
    gradient[i] = g * scale;
  }
}

// Calls with each row, the scores that it sees and its index; then clears the others.
template <class With>
void for_rows(const ScoreRows& block, With with) {
  for (int64_t i = 0; i < block.rows; i++) {
    float* const row = block.data + i * block.stride;
    const int64_t visible = std::min(block.visible + i, block.columns);
    with(row, visible, i);
    std::fill(row + visible, row + block.columns, 0.0f);
  }
}

}  // namespace

void softmax_rows(const ScoreRows& scores, float* sums, int64_t sums_stride) {
  for_rows(scores, [&](float* row, int64_t visible, int64_t i) {
    sums[i * sums_stride] = softmax_row(row, visible);
  });
}

void weights_of_rows(const ScoreRows& scores, const float* sums, int64_t sums_stride) {
  for_rows(scores, [&](float* row, int64_t visible, int64_t i) {
    weights_row_of(row, visible, sums[i * sums_stride]);
  });
}

void score_gradients(const ScoreRows& gradient, const float* weights, const float* means, float scale) {
  for_rows(gradient, [&](float* row, int64_t visible, int64_t i) {
    score_gradient_row(row, weights + i * gradient.stride, visible, means[i], scale);
  });
}

void products_of_rows(const float* a, const float* b, int64_t rows, int64_t columns, float* means) {
  for (int64_t i = 0; i < rows; i++) means[i] = product_of_row(a + i * columns, b + i * columns, columns);
}

void biased_softmax_rows(const ScoreRows& scores, const float* bias) {
  for_rows(scores, [&](float* row, int64_t visible, int64_t i) {
    if (bias != nullptr) add_bias_to_row(row, bias - i, visible);
    softmax_row(row, visible);
  });
}

void drop_rows(const ScoreRows& weights, const RowDropout& dropout, float* to) {
  if (dropout.row_keys == nullptr) return;
  for_rows({to, weights.stride, weights.rows, weights.columns, weights.visible},
           [&](float* row, int64_t visible, int64_t i) {
             drop_weights_of_row(weights.data + i * weights.stride, row, visible,
                                 RowMask(dropout.row_keys[i] + dropout.head_key, dropout.key, dropout.p));
           });
}

void biased_score_gradients(const ScoreRows& gradient, const float* weights, const RowDropout& dropout,
                            float scale, float* by_distance) {
  drop_rows(gradient, dropout, gradient.data);
  for_rows(gradient, [&](float* row, int64_t visible, int64_t i) {
    const float* const of_row = weights + i * gradient.stride;
    if (by_distance != nullptr) {
      biased_score_gradient_row(row, of_row, visible, scale, by_distance - i);
    } else {
      score_gradient_row(row, of_row, visible, product_of_row(row, of_row, visible), scale);
    }
  });
}

}  // namespace trainer
