#include "nn/product_tiles.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainer {

#if defined(__x86_64__)

#define TRAINER_AVX2 __attribute__((target("avx2,fma")))
#define TRAINER_AVX2_INLINE TRAINER_AVX2 inline __attribute__((always_inline))

bool has_product_tiles() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

namespace {

TRAINER_AVX2_INLINE void prefetch(const void* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

static_assert(kTileRows == 6 && kTileColumns == 16);

// Twelve sums += a number of each row times 16 columns, of the place that is `place` after a and b. In
// assembly, because the compiler takes more than the 16 registers and saves some in memory, depending on the
// code around it.
template <int place>
TRAINER_AVX2_INLINE void add_place(__m256 (&sums)[kTileRows][2], const float* a, const float* b) {
#define TRAINER_ROW(row, x, left, right)                                                 \
  "vbroadcastss %c[a_at]+4*" row "(%[a]), %%" x "; vfmadd231ps %%ymm12, %%" x ", %" left \
  "; vfmadd231ps %%ymm13, %%" x ", %" right ";"
  asm("vmovaps %c[b_at](%[b]), %%ymm12; vmovaps %c[b_at]+32(%[b]), %%ymm13;"   //
      TRAINER_ROW("0", "ymm14", "0", "1") TRAINER_ROW("1", "ymm15", "2", "3")  //
      TRAINER_ROW("2", "ymm14", "4", "5") TRAINER_ROW("3", "ymm15", "6", "7")  //
      TRAINER_ROW("4", "ymm14", "8", "9") TRAINER_ROW("5", "ymm15", "10", "11")
      : "+x"(sums[0][0]), "+x"(sums[0][1]), "+x"(sums[1][0]), "+x"(sums[1][1]), "+x"(sums[2][0]),
        "+x"(sums[2][1]), "+x"(sums[3][0]), "+x"(sums[3][1]), "+x"(sums[4][0]), "+x"(sums[4][1]),
        "+x"(sums[5][0]), "+x"(sums[5][1])
      : [a] "r"(a), [b] "r"(b), [a_at] "i"(place * kTileRows * 4), [b_at] "i"(place * kTileColumns * 4)
      : "xmm12", "xmm13", "xmm14", "xmm15", "memory");
#undef TRAINER_ROW
}

// Four places. The processor is asked for what is needed 16 places later.
TRAINER_AVX2_INLINE void add_four_places(__m256 (&sums)[kTileRows][2], const float* a, const float* b) {
  constexpr int64_t ahead = 16;
  prefetch(a + ahead * kTileRows);
  prefetch(b + ahead * kTileColumns);
  add_place<0>(sums, a, b);
  prefetch(b + (ahead + 1) * kTileColumns);
  add_place<1>(sums, a, b);
  prefetch(b + (ahead + 2) * kTileColumns);
  add_place<2>(sums, a, b);
  prefetch(b + (ahead + 3) * kTileColumns);
  add_place<3>(sums, a, b);
}

TRAINER_AVX2_INLINE void begin_tile(__m256 (&sums)[kTileRows][2], const float* c, int64_t c_stride) {
#pragma GCC unroll 6
  for (int row = 0; row < kTileRows; row++) {
    prefetch(c + row * c_stride);
    prefetch(c + row * c_stride + 15);
    sums[row][0] = sums[row][1] = _mm256_setzero_ps();
  }
}

TRAINER_AVX2_INLINE void end_tile(const __m256 (&sums)[kTileRows][2], float* c, int64_t c_stride, bool add) {
#pragma GCC unroll 6
  for (int row = 0; row < kTileRows; row++) {
    float* to = c + row * c_stride;
    const __m256 left = add ? _mm256_add_ps(sums[row][0], _mm256_loadu_ps(to)) : sums[row][0];
    const __m256 right = add ? _mm256_add_ps(sums[row][1], _mm256_loadu_ps(to + 8)) : sums[row][1];
    _mm256_storeu_ps(to, left);
    _mm256_storeu_ps(to + 8, right);
  }
}

TRAINER_AVX2_INLINE __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
TRAINER_AVX2_INLINE __m256 load8(const c10::BFloat16* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

TRAINER_AVX2_INLINE void transpose8(__m256 (&rows)[8]) {
  __m256 pairs[8], fours[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    rows[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}

// Stores the first `count` of eight numbers; writes nothing behind them.
TRAINER_AVX2_INLINE void store_first(float* to, __m256 x, int64_t count) {
  if (count >= 8) return _mm256_storeu_ps(to, x);
  _mm_storeu_ps(to, _mm256_castps256_ps128(x));  // kTileRows: four and two
  _mm_storel_pi(reinterpret_cast<__m64*>(to + 4), _mm256_extractf128_ps(x, 1));
}

TRAINER_AVX2_INLINE __m128 load4(const float* from) { return _mm_loadu_ps(from); }
TRAINER_AVX2_INLINE __m128 load4(const c10::BFloat16* from) {
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
}

// Copies a place's numbers of one panel, times a factor, and reads and writes nothing behind them.
template <int width, class T>
TRAINER_AVX2_INLINE void copy_place(const T* from, __m256 factor, float* to) {
  if constexpr (width == kTileColumns) {
    _mm256_storeu_ps(to, _mm256_mul_ps(load8(from), factor));
    _mm256_storeu_ps(to + 8, _mm256_mul_ps(load8(from + 8), factor));
  } else {
    static_assert(width == 6, "two overlapping vectors of four");
    const __m128 last = load4(from + 2), four = _mm256_castps256_ps128(factor);
    _mm_storeu_ps(to, _mm_mul_ps(load4(from), four));
    _mm_storeh_pi(reinterpret_cast<__m64*>(to + 4), _mm_mul_ps(last, four));
  }
}

// All panels, row by row, with rows ahead fetched: they are often on other pages, where the processor does
// not look by itself.
template <class T, int width>
TRAINER_AVX2 void pack_columns_by(const T* from, int64_t row_stride, int64_t count, int64_t depth,
                                  float scale, float* to) {
  const __m256 factor = _mm256_set1_ps(scale);
  constexpr int64_t line = 64 / sizeof(T), ahead = 8;
  const int64_t whole = count / width * width;
  for (int64_t place = 0; place < depth; place++, from += row_stride, to += width) {
    for (int64_t column = 0; column < count; column += line) prefetch(from + ahead * row_stride + column);
    for (int64_t column = 0; column < whole; column += width)
      copy_place<width>(from + column, factor, to + column * depth);
    for (int64_t column = whole; whole < count && column < whole + width; column++)
      to[whole * depth + column - whole] = column < count ? static_cast<float>(from[column]) * scale : 0.0f;
  }
}

template <class T, int width>
TRAINER_AVX2 void pack_rows_by(const T* from, int64_t row_stride, int64_t count, int64_t depth, float scale,
                               float* to) {
  const __m256 factor = _mm256_set1_ps(scale);
  int64_t place = 0;
  for (; place + 8 <= depth; place += 8) {
    for (int first = 0; first < width; first += 8) {
      __m256 rows[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) {
        const int row = first + i;
        rows[i] = row < width && row < count ? _mm256_mul_ps(load8(from + row * row_stride + place), factor)
                                             : _mm256_setzero_ps();
      }
      transpose8(rows);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) store_first(to + (place + i) * width + first, rows[i], width - first);
    }
  }
  for (; place < depth; place++) {
    for (int i = 0; i < width; i++)
      to[place * width + i] = i < count ? static_cast<float>(from[i * row_stride + place]) * scale : 0.0f;
  }
}

}  // namespace

TRAINER_AVX2 void add_tiles(int64_t tiles, int64_t depth, const float* a, int64_t a_stride, const float* b,
                            float* c, int64_t c_stride, bool add) {
  for (; tiles > 0; tiles--, a += a_stride, c += kTileRows * c_stride) {
    __m256 sums[kTileRows][2];
    begin_tile(sums, c, c_stride);
    const float *x = a, *y = b;
    int64_t place = 0;
    for (; place + 4 <= depth; place += 4) {
      add_four_places(sums, x, y);
      x += 4 * kTileRows;
      y += 4 * kTileColumns;
    }
    for (; place < depth; place++) {
      add_place<0>(sums, x, y);
      x += kTileRows;
      y += kTileColumns;
    }
    for (int64_t line = 0; line < 6; line++)
      prefetch(a + a_stride + 16 * line);  // the next tile's first 16 places
    end_tile(sums, c, c_stride, add);
  }
}

template <class T>
void pack_columns(const T* from, int64_t row_stride, int64_t count, int64_t depth, int64_t width, float scale,
                  float* to) {
  width == kTileRows ? pack_columns_by<T, kTileRows>(from, row_stride, count, depth, scale, to)
                     : pack_columns_by<T, kTileColumns>(from, row_stride, count, depth, scale, to);
}

template <class T>
void pack_rows(const T* from, int64_t row_stride, int64_t count, int64_t depth, int64_t width, float scale,
               float* to) {
  for (; count > 0; count -= width, from += width * row_stride, to += width * depth) {
    const int64_t here = std::min(count, width);
    width == kTileRows ? pack_rows_by<T, kTileRows>(from, row_stride, here, depth, scale, to)
                       : pack_rows_by<T, kTileColumns>(from, row_stride, here, depth, scale, to);
  }
}

#else

// cpu_products() never names these products where has_product_tiles() is false.
bool has_product_tiles() { return false; }
void add_tiles(int64_t, int64_t, const float*, int64_t, const float*, float*, int64_t, bool) {}
template <class T>
void pack_columns(const T*, int64_t, int64_t, int64_t, int64_t, float, float*) {}
template <class T>
void pack_rows(const T*, int64_t, int64_t, int64_t, int64_t, float, float*) {}

#endif

template void pack_columns<float>(const float*, int64_t, int64_t, int64_t, int64_t, float, float*);
template void pack_columns<c10::BFloat16>(const c10::BFloat16*, int64_t, int64_t, int64_t, int64_t, float,
                                          float*);
template void pack_rows<float>(const float*, int64_t, int64_t, int64_t, int64_t, float, float*);
template void pack_rows<c10::BFloat16>(const c10::BFloat16*, int64_t, int64_t, int64_t, int64_t, float,
                                       float*);

}  // namespace trainer
