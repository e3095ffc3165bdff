#include <algorithm>
#include <cmath>

#include "gemm/product_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainer {

#if defined(__x86_64__)

#define TRAINER_AVX2 __attribute__((target("avx2,fma")))
#define TRAINER_AVX2_INLINE TRAINER_AVX2 inline __attribute__((always_inline))

namespace {

// 6 x 16 sums are 12 of the 16 registers, which leaves 4 for operands.
constexpr int64_t kRows = 6, kColumns = 16;

TRAINER_AVX2_INLINE void prefetch(const void* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

// Twelve sums += a number of each row times 16 columns, of the place that is `place` after x and y. In
// assembly, because the compiler takes more than the 16 registers and saves some in memory, depending on the
// code around it.
template <int place>
TRAINER_AVX2_INLINE void add_place(__m256 (&sums)[kRows][2], const float* x, const float* y) {
#define TRAINER_ROW(row, at, left, right)                                                  \
  "vbroadcastss %c[x_at]+4*" row "(%[x]), %%" at "; vfmadd231ps %%ymm12, %%" at ", %" left \
  "; vfmadd231ps %%ymm13, %%" at ", %" right ";"
  asm("vmovaps %c[y_at](%[y]), %%ymm12; vmovaps %c[y_at]+32(%[y]), %%ymm13;"   //
      TRAINER_ROW("0", "ymm14", "0", "1") TRAINER_ROW("1", "ymm15", "2", "3")  //
      TRAINER_ROW("2", "ymm14", "4", "5") TRAINER_ROW("3", "ymm15", "6", "7")  //
      TRAINER_ROW("4", "ymm14", "8", "9") TRAINER_ROW("5", "ymm15", "10", "11")
      : "+x"(sums[0][0]), "+x"(sums[0][1]), "+x"(sums[1][0]), "+x"(sums[1][1]), "+x"(sums[2][0]),
        "+x"(sums[2][1]), "+x"(sums[3][0]), "+x"(sums[3][1]), "+x"(sums[4][0]), "+x"(sums[4][1]),
        "+x"(sums[5][0]), "+x"(sums[5][1])
      : [x] "r"(x), [y] "r"(y), [x_at] "i"(place * kRows * 4), [y_at] "i"(place * kColumns * 4)
      : "xmm12", "xmm13", "xmm14", "xmm15", "memory");
#undef TRAINER_ROW
}

// Four places. The processor is asked for what is needed 16 places later.
TRAINER_AVX2_INLINE void add_four_places(__m256 (&sums)[kRows][2], const float* x, const float* y) {
  constexpr int64_t ahead = 16;
  prefetch(x + ahead * kRows);
  prefetch(y + ahead * kColumns);
  add_place<0>(sums, x, y);
  prefetch(y + (ahead + 1) * kColumns);
  add_place<1>(sums, x, y);
  prefetch(y + (ahead + 2) * kColumns);
  add_place<2>(sums, x, y);
  prefetch(y + (ahead + 3) * kColumns);
  add_place<3>(sums, x, y);
}

TRAINER_AVX2_INLINE void begin_tile(__m256 (&sums)[kRows][2], const float* c, int64_t c_stride) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; row++) {
    prefetch(c + row * c_stride);
    prefetch(c + row * c_stride + 15);
    sums[row][0] = sums[row][1] = _mm256_setzero_ps();
  }
}

// With a sum, scale and sum are one FMA here as at edges: so a number does not depend on its place.
TRAINER_AVX2_INLINE void end_tile(const __m256 (&sums)[kRows][2], float* c, int64_t c_stride, float scale,
                                  bool add) {
  const __m256 factor = _mm256_set1_ps(scale);
#pragma GCC unroll 6
  for (int row = 0; row < kRows; row++) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      float* const to = c + row * c_stride + 8 * half;
      const __m256 sum = sums[row][half];
      _mm256_storeu_ps(to,
                       add ? _mm256_fmadd_ps(sum, factor, _mm256_loadu_ps(to)) : _mm256_mul_ps(sum, factor));
    }
  }
}

TRAINER_AVX2_INLINE void compute_tile(const TileColumn& column, const float* x, float* c, int64_t c_stride,
                                      float scale, bool add) {
  __m256 sums[kRows][2];
  begin_tile(sums, c, c_stride);
  const float* y = column.y;
  const float* const next = x + column.x_stride;
  int64_t place = 0;
  for (; place + 4 <= column.words; place += 4) {
    add_four_places(sums, x, y);
    x += 4 * kRows;
    y += 4 * kColumns;
  }
  for (; place < column.words; place++) {
    add_place<0>(sums, x, y);
    x += kRows;
    y += kColumns;
  }
  for (int64_t line = 0; line < 6; line++) prefetch(next + 16 * line);  // the next tile's first 16 places
  end_tile(sums, c, c_stride, scale, add);
}

TRAINER_AVX2 void compute_column_of_6x16(const TileColumn& column) {
  const int64_t whole = column.columns == kColumns ? column.rows / kRows * kRows : 0;
  const float* x = column.x;
  float* c = column.c;
  int64_t row = 0;
  for (; row < whole; row += kRows, x += column.x_stride, c += kRows * column.c_stride)
    compute_tile(column, x, c, column.c_stride, column.scale, column.add);
  for (; row < column.rows; row += kRows, x += column.x_stride, c += kRows * column.c_stride) {
    alignas(32) float edge[kRows * kColumns];
    compute_tile(column, x, edge, kColumns, 1.0f, /*add=*/false);
    for (int64_t i = 0; i < std::min(kRows, column.rows - row); i++) {
      float* const to = c + i * column.c_stride;
      for (int64_t j = 0; j < column.columns; j++) {
        const float sum = edge[i * kColumns + j];
        to[j] = column.add ? std::fma(sum, column.scale, to[j]) : sum * column.scale;
      }
    }
  }
}

}  // namespace

const ProductTiles* tiles_of_avx2() {
  // 320 words of 16 columns, 20 KB, stay in the first-level cache.
  static constexpr ProductTiles tiles{.rows = kRows,
                                      .columns = kColumns,
                                      .bf16 = false,
                                      .reads_plain = false,
                                      .words = 320,
                                      .compute = compute_column_of_6x16};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &tiles : nullptr;
}

#else

const ProductTiles* tiles_of_avx2() { return nullptr; }

#endif

}  // namespace trainer
