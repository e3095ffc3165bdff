// Products of matrices that lie in a core's caches, for loops in which a call of a library, or packing the
// operands, would take longer than the product. Their order of sums is fixed. For files compiled as
// vector_math.h says.
#pragma once

#include <cstdint>

#include "base/vector_math.h"

namespace trainer {
namespace {

// Rows must be a multiple of kSmallRows and columns of kSmallColumns; buffers are padded with zeros.
constexpr int64_t kSmallRows = 8, kSmallColumns = 16;
constexpr int64_t padded_columns(int64_t n) {
  return (n + kSmallColumns - 1) / kSmallColumns * kSmallColumns;
}
// The distance of rows in such a buffer: with a power of two they would compete for a few lines of the cache.
constexpr int64_t row_distance(int64_t columns) { return padded_columns(columns) + kSmallColumns; }

// The left operand. Element (i, k) is data[i * row + k * column]: also that of a transposed matrix.
struct SmallLeft {
  const float* data;
  int64_t row, column;
};
struct SmallSize {
  int64_t rows, columns, depth;
};
enum class Into { set, add, subtract };

using Floats = float __attribute__((vector_size(64), aligned(4), may_alias));

template <int rows, int vectors, Into into>
TRAINER_INLINE void small_tile(const SmallLeft& x, const float* y, int64_t y_row, float* sum, int64_t sum_row,
                               int64_t depth) {
  Floats sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) sums[r][v] = Floats{};
  }
  const float* left = x.data;
  for (int64_t k = 0; k < depth; k++, left += x.column, y += y_row) {
    Floats right[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) right[v] = *reinterpret_cast<const Floats*>(y + v * kSmallColumns);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      const float factor = left[r * x.row];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++) sums[r][v] += factor * right[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      auto* to = reinterpret_cast<Floats*>(sum + r * sum_row + v * kSmallColumns);
      if constexpr (into == Into::set) *to = sums[r][v];
      if constexpr (into == Into::add) *to = *to + sums[r][v];
      if constexpr (into == Into::subtract) *to = *to - sums[r][v];
    }
  }
}

template <int rows, int vectors, Into into>
TRAINER_INLINE void small_tiles(const SmallLeft& x, const float* y, int64_t y_row, float* sum,
                                int64_t sum_row, const SmallSize& size) {
  constexpr int64_t width = vectors * kSmallColumns;
  int64_t c = 0;
  for (; c + width <= size.columns; c += width) {
    for (int64_t r = 0; r < size.rows; r += rows) {
      small_tile<rows, vectors, into>({x.data + r * x.row, x.row, x.column}, y + c, y_row,
                                      sum + r * sum_row + c, sum_row, size.depth);
    }
  }
  for (; c < size.columns; c += kSmallColumns) {
    for (int64_t r = 0; r < size.rows; r += rows) {
      small_tile<rows, 1, into>({x.data + r * x.row, x.row, x.column}, y + c, y_row, sum + r * sum_row + c,
                                sum_row, size.depth);
    }
  }
}

// As many sums as fit into the registers of each kind of processor.
template <Into into>
__attribute__((target("arch=x86-64-v4"))) void small_product_avx512(const SmallLeft& x, const float* y,
                                                                    int64_t y_row, float* sum,
                                                                    int64_t sum_row, const SmallSize& size) {
  small_tiles<8, 2, into>(x, y, y_row, sum, sum_row, size);
}
template <Into into>
__attribute__((target_clones("arch=x86-64-v3", "default"))) void small_product_plain(
    const SmallLeft& x, const float* y, int64_t y_row, float* sum, int64_t sum_row, const SmallSize& size) {
  small_tiles<4, 1, into>(x, y, y_row, sum, sum_row, size);
}

// sum = x y, sum += x y, or sum -= x y, for y and sum with contiguous rows.
template <Into into>
void small_product(const SmallLeft& x, const float* y, int64_t y_row, float* sum, int64_t sum_row,
                   const SmallSize& size) {
  static const bool avx512 = __builtin_cpu_supports("x86-64-v4");
  if (avx512) {
    small_product_avx512<into>(x, y, y_row, sum, sum_row, size);
  } else {
    small_product_plain<into>(x, y, y_row, sum, sum_row, size);
  }
}

// to = from^T for from [rows, columns], in blocks, so that both stay in the nearest cache.
TRAINER_VECTORISED void transpose_small(const float* __restrict__ from, int64_t from_row,
                                        float* __restrict__ to, int64_t to_row, int64_t rows,
                                        int64_t columns) {
  constexpr int64_t block = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += block) {
    const int64_t r_end = r0 + block < rows ? r0 + block : rows;
    for (int64_t c = 0; c < columns; c++) {
      for (int64_t r = r0; r < r_end; r++) to[c * to_row + r] = from[r * from_row + c];
    }
  }
}

}  // namespace
}  // namespace trainer
