// The passes over rows of scores between the products of gemm/attention.h and
// gemm/biased_attention.h. Row i of a block sees its
// first `visible` + i scores; what is behind them, up to `columns`, becomes 0.
#pragma once

#include <cstdint>

namespace trainer {

struct ScoreRows {
  float* data;
  int64_t stride, rows, columns, visible;
};

// The stride of rows for so many columns: whole lines of the cache.
inline int64_t score_stride(int64_t columns) { return (columns + 15) / 16 * 16; }

// Replaces scores by their softmax; sums[i * sums_stride] is the logarithm of row i's sum.
void softmax_rows(const ScoreRows& scores, float* sums, int64_t sums_stride);
// The same, with the sums known.
void weights_of_rows(const ScoreRows& scores, const float* sums, int64_t sums_stride);
// Replaces the gradient of the weights by that of the scores before their scale: scale * weights * (gradient
// - mean), with the mean of each row that the weights give.
void score_gradients(const ScoreRows& gradient, const float* weights, const float* means, float scale);
// means[i] = a row i times b row i, for fp32 rows of `columns` numbers.
void products_of_rows(const float* a, const float* b, int64_t rows, int64_t columns, float* means);

// Dropout of the weights of one head: the mask of row i is that of row_keys[i] + head_key.
struct RowDropout {
  const int64_t* row_keys = nullptr;  // null: no dropout
  int64_t head_key = 0, key = 0;
  double p = 0.0;
};

// Replaces scores by the softmax of them and a bias, that of row i from bias - i on; null: no bias.
void biased_softmax_rows(const ScoreRows& scores, const float* bias);
// Writes the weights after dropout to rows of the same stride, which may be the weights' own.
void drop_rows(const ScoreRows& weights, const RowDropout& dropout, float* to);
// Replaces the gradient of the dropped-out weights by that of the scores before their scale; adds that after
// it to by_distance - i for row i, unless that is null. `weights` are those before dropout.
void biased_score_gradients(const ScoreRows& gradient, const float* weights, const RowDropout& dropout,
                            float scale, float* by_distance);

}  // namespace trainer
