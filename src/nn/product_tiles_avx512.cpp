#include <algorithm>

#include "nn/product_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainer {

#if defined(__x86_64__)

#define TRAINER_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define TRAINER_AVX512_INLINE TRAINER_AVX512 inline __attribute__((always_inline))

namespace {

// 12 x 32 sums are 24 of the 32 registers.
constexpr int kMostRows = 12, kMostVectors = 2, kVector = 16;
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

TRAINER_AVX512_INLINE void prefetch_line(const void* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

// A tile's first `rows` rows and 16 * vectors columns, of which c has `c_rows` and `c_columns`.
template <bool bf16, bool packed, int rows, int vectors>
TRAINER_AVX512 void compute_tile_of(const TileColumn& column, const float* x, float* c, int64_t c_rows,
                                    int64_t c_columns) {
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
  const __m512 factor = _mm512_set1_ps(column.scale);
#pragma GCC unroll 12
  for (int row = 0; row < rows; row++) {
    if (row >= c_rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      const int64_t left = c_columns - v * kVector;
      const auto mask = static_cast<__mmask16>(left >= kVector ? 0xFFFF : (1 << left) - 1);
      float* const to = c + row * column.c_stride + v * kVector;
      const __m512 sum = column.add ? _mm512_fmadd_ps(sums[row][v], factor, _mm512_maskz_loadu_ps(mask, to))
                                    : _mm512_mul_ps(sums[row][v], factor);
      _mm512_mask_storeu_ps(to, mask, sum);
    }
  }
}

// Of fewer rows and columns, where the others are not needed.
template <bool bf16, bool packed, int vectors>
TRAINER_AVX512 void compute_tiles_of(const TileColumn& column) {
  const float* x = column.x;
  float* c = column.c;
  for (int64_t row = 0; row < column.rows;
       row += kMostRows, x += column.x_stride, c += kMostRows * column.c_stride) {
    const int64_t rows = std::min<int64_t>(kMostRows, column.rows - row);
    const auto compute = rows > 8   ? compute_tile_of<bf16, packed, 12, vectors>
                         : rows > 4 ? compute_tile_of<bf16, packed, 8, vectors>
                                    : compute_tile_of<bf16, packed, 4, vectors>;
    compute(column, x, c, rows, column.columns);
  }
}

template <bool bf16>
void compute_column_of_12x32(const TileColumn& column) {
  const bool packed = column.x_row == 0, wide = column.columns > kVector;
  const auto compute = packed ? (wide ? compute_tiles_of<bf16, true, 2> : compute_tiles_of<bf16, true, 1>)
                              : (wide ? compute_tiles_of<bf16, false, 2> : compute_tiles_of<bf16, false, 1>);
  compute(column);
}

// Numbers below 1e-38 become 0.
TRAINER_AVX512 void round_rows(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                               c10::BFloat16* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; row++, from += from_stride, to += to_stride) {
    for (int64_t column = 0; column < columns; column += kVector) {
      const int64_t left = columns - column;
      const auto mask = static_cast<__mmask16>(left >= kVector ? 0xFFFF : (1 << left) - 1);
      __m256i rounded;
      asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(_mm512_maskz_loadu_ps(mask, from + column)));
      _mm256_mask_storeu_epi16(to + column, mask, rounded);
    }
  }
}

constexpr int64_t kWords = 192;  // of 32 columns are 24 KB

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace

const ProductTiles* tiles_of_avx512() {
  static constexpr ProductTiles tiles{
      kMostRows, kWidth, /*bf16=*/false, /*reads_plain=*/true, kWords, compute_column_of_12x32<false>};
  return has_avx512() && tiles_of_avx2() ? &tiles : nullptr;
}

const ProductTiles* tiles_of_avx512_bf16() {
  static constexpr ProductTiles tiles{
      kMostRows, kWidth, /*bf16=*/true, /*reads_plain=*/true, kWords, compute_column_of_12x32<true>,
      round_rows};
  return __builtin_cpu_supports("avx512bf16") && tiles_of_avx512() ? &tiles : nullptr;
}

#else

const ProductTiles* tiles_of_avx512() { return nullptr; }
const ProductTiles* tiles_of_avx512_bf16() { return nullptr; }

#endif

}  // namespace trainer
