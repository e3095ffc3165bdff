#include <algorithm>

#include "gemm/product_tiles.h"
#include "gemm/product_vectors.h"

namespace trainer {

#if defined(__x86_64__)

namespace {

// 12 x 32 sums are 24 of the 32 registers.
constexpr int kMostRows = 12, kMostVectors = 2;
constexpr int kWidth = kMostVectors * kVector;

// sum += x y
template <bool bf16>
TRAINER_AVX512_INLINE void add_products(__m512& sum, __m512 x, __m512 y) {
  if constexpr (bf16) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(y), "v"(x));  // of a pair, with the sum in fp32
  } else {
    sum = _mm512_fmadd_ps(x, y, sum);
  }
}

// A tile's first `rows` rows and 16 * vectors columns, of which there are `c_rows` rows. c and rounded are
// the column's, from the tile's first row on. With c_rows as a minimum computed here, GCC 12 would keep the
// sums in memory.
template <bool bf16, bool packed, int rows, int vectors>
TRAINER_AVX512 void compute_tile_of(const TileColumn& column, const float* x, float* c,
                                    c10::BFloat16* rounded, int64_t c_rows) {
  constexpr int ahead = 16;  // places
  __m512 sums[rows][vectors];
#pragma GCC unroll 12
  for (int row = 0; row < rows; row++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) sums[row][v] = _mm512_setzero_ps();
    if (row < c_rows) prefetch_line(c + row * column.c_stride);
  }
  // Not packed: rows that are not there are the last one.
  const float* plain_rows[rows];
  for (int row = 0; row < rows && !packed; row++)
    plain_rows[row] = x + std::min<int64_t>(row, c_rows - 1) * column.x_row;
  const float* y = column.y;
  for (int64_t word = 0; word < column.words; word++, x += kMostRows, y += column.y_stride) {
    if (packed) prefetch_line(x + ahead * kMostRows);
    __m512 y_word[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      prefetch_line(y + ahead * column.y_stride + v * kVector);
      y_word[v] = _mm512_loadu_ps(y + v * kVector);
    }
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) {
      const __m512 x_word = _mm512_set1_ps(packed ? x[row] : plain_rows[row][word]);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++) add_products<bf16>(sums[row][v], x_word, y_word[v]);
    }
  }
  if constexpr (bf16 && vectors == 2) {
    if (rounded && column.columns == kWidth) {
#pragma GCC unroll 12
      for (int row = 0; row < rows; row++) {
        if (row >= c_rows) break;
        const float* const at = c + row * column.c_stride;
        store_rounded(rounded + row * column.rounded_stride, sum_of(column, sums[row][0], at, 0xFFFF),
                      sum_of(column, sums[row][1], at + kVector, 0xFFFF));
      }
      return;
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < rows; row++) {
    if (row >= c_rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      const __mmask16 mask = first_lanes(column.columns - v * kVector);
      float* const at = c + row * column.c_stride + v * kVector;
      const __m512 sum = sum_of(column, sums[row][v], at, mask);
      if (bf16 && rounded) {
        store_rounded(rounded + row * column.rounded_stride + v * kVector, mask, sum);
      } else {
        _mm512_mask_storeu_ps(at, mask, sum);
      }
    }
  }
}

// A tile of fewer rows and columns, where the others are not needed.
template <bool bf16, bool packed, int vectors>
TRAINER_AVX512 void compute_tiles_of(const TileColumn& column) {
  const float* x = column.x;
  float* c = column.c;
  c10::BFloat16* rounded = column.rounded;
  for (int64_t row = 0; row < column.rows; row += kMostRows) {
    const int64_t rows = std::min<int64_t>(kMostRows, column.rows - row);
    const auto compute = rows > 8   ? compute_tile_of<bf16, packed, 12, vectors>
                         : rows > 4 ? compute_tile_of<bf16, packed, 8, vectors>
                                    : compute_tile_of<bf16, packed, 4, vectors>;
    compute(column, x, c, rounded, rows);
    x += column.x_stride;
    c += kMostRows * column.c_stride;
    if (rounded) rounded += kMostRows * column.rounded_stride;
  }
}

template <bool bf16>
void compute_column_of_12x32(const TileColumn& column) {
  const bool packed = column.x_row == 0, wide = column.columns > kVector;
  const auto compute = packed ? (wide ? compute_tiles_of<bf16, true, 2> : compute_tiles_of<bf16, true, 1>)
                              : (wide ? compute_tiles_of<bf16, false, 2> : compute_tiles_of<bf16, false, 1>);
  compute(column);
}

TRAINER_AVX512 void round_rows(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                               c10::BFloat16* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; row++, from += from_stride, to += to_stride) {
    for (int64_t column = 0; column < columns; column += kVector) {
      const __mmask16 mask = first_lanes(columns - column);
      store_rounded(to + column, mask, _mm512_maskz_loadu_ps(mask, from + column));
    }
  }
}

constexpr int64_t kWords = 192;  // of 32 columns, 24 KB, stay in the first-level cache

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace

const ProductTiles* tiles_of_avx512() {
  static constexpr ProductTiles tiles{.rows = kMostRows,
                                      .columns = kWidth,
                                      .bf16 = false,
                                      .reads_plain = true,
                                      .words = kWords,
                                      .compute = compute_column_of_12x32<false>};
  return has_avx512() && tiles_of_avx2() ? &tiles : nullptr;
}

const ProductTiles* tiles_of_avx512_bf16() {
  static constexpr ProductTiles tiles{.rows = kMostRows,
                                      .columns = kWidth,
                                      .bf16 = true,
                                      .reads_plain = true,
                                      .words = kWords,
                                      .compute = compute_column_of_12x32<true>,
                                      .round = round_rows};
  return __builtin_cpu_supports("avx512bf16") && tiles_of_avx512() ? &tiles : nullptr;
}

#else

const ProductTiles* tiles_of_avx512() { return nullptr; }
const ProductTiles* tiles_of_avx512_bf16() { return nullptr; }

#endif

}  // namespace trainer
