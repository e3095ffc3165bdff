#include "gemm/product_lines.h"

#include <algorithm>
#include <cstring>

#include "gemm/product_vectors.h"

namespace trainer {

void pack_rows_in_lines(const c10::BFloat16* from, int64_t row_stride, int64_t count, int64_t depth,
                        float* to) {
  const int64_t words = line_of_words((depth + 1) / 2);
  for (int64_t row = 0; row < count; row++, from += row_stride, to += words) {
    std::memset(to + depth / 2, 0, sizeof(float) * static_cast<size_t>(words - depth / 2));
    std::memcpy(to, from, sizeof(*from) * static_cast<size_t>(depth));
  }
}

#if defined(__x86_64__)

namespace {

constexpr int64_t kLines = 32, kWordsAtOnce = 16, kPlacesAtOnce = 2 * kWordsAtOnce;

// With a mask, of all: GCC 12 warns of the header's other forms.
TRAINER_AVX512_INLINE __m512i low_words(__m512i a, __m512i b) {
  return _mm512_maskz_unpacklo_epi32(0xFFFF, a, b);
}
TRAINER_AVX512_INLINE __m512i high_words(__m512i a, __m512i b) {
  return _mm512_maskz_unpackhi_epi32(0xFFFF, a, b);
}
TRAINER_AVX512_INLINE __m512i low_pairs(__m512i a, __m512i b) {
  return _mm512_maskz_unpacklo_epi64(0xFF, a, b);
}
TRAINER_AVX512_INLINE __m512i high_pairs(__m512i a, __m512i b) {
  return _mm512_maskz_unpackhi_epi64(0xFF, a, b);
}
// Return the even or the odd ones of the four lanes of a and of b.
TRAINER_AVX512_INLINE __m512i even_lanes(__m512i a, __m512i b) {
  return _mm512_maskz_shuffle_i32x4(0xFFFF, a, b, 0x88);
}
TRAINER_AVX512_INLINE __m512i odd_lanes(__m512i a, __m512i b) {
  return _mm512_maskz_shuffle_i32x4(0xFFFF, a, b, 0xDD);
}

TRAINER_AVX512_INLINE void transpose16(__m512i (&rows)[16]) {
  __m512i pairs[16], fours[16], eights[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = low_words(rows[i], rows[i + 1]);
    pairs[i + 1] = high_words(rows[i], rows[i + 1]);
  }
  // Number 4 i + j has, of each lane, column j of four rows.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = low_pairs(pairs[i], pairs[i + 2]);
    fours[i + 1] = high_pairs(pairs[i], pairs[i + 2]);
    fours[i + 2] = low_pairs(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = high_pairs(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    eights[j] = even_lanes(fours[j], fours[4 + j]);
    eights[4 + j] = odd_lanes(fours[j], fours[4 + j]);
    eights[8 + j] = even_lanes(fours[8 + j], fours[12 + j]);
    eights[12 + j] = odd_lanes(fours[8 + j], fours[12 + j]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    rows[j] = even_lanes(eights[j], eights[8 + j]);
    rows[8 + j] = odd_lanes(eights[j], eights[8 + j]);
    rows[4 + j] = even_lanes(eights[4 + j], eights[12 + j]);
    rows[12 + j] = odd_lanes(eights[4 + j], eights[12 + j]);
  }
}

// 16 words of up to 32 columns, of which `places` places are there.
TRAINER_AVX512 void pack_some(const c10::BFloat16* from, int64_t row_stride, int64_t columns, int64_t places,
                              int64_t line, float* to) {
  const auto mask = static_cast<__mmask32>((uint64_t{1} << columns) - 1);
  const auto row_of = [&](int64_t place) TRAINER_AVX512 {
    if (place >= places) return _mm512_setzero_si512();
    _mm_prefetch(reinterpret_cast<const char*>(from + (place + kPlacesAtOnce) * row_stride), _MM_HINT_T0);
    return _mm512_maskz_loadu_epi16(mask, from + place * row_stride);
  };
  // The first four and the last four of each eight columns.
  __m512i low[16], high[16];
#pragma GCC unroll 16
  for (int word = 0; word < 16; word++) {
    const __m512i first = row_of(2 * word), second = row_of(2 * word + 1);
    low[word] = _mm512_maskz_unpacklo_epi16(~0U, first, second);
    high[word] = _mm512_maskz_unpackhi_epi16(~0U, first, second);
  }
  transpose16(low);
  transpose16(high);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    const int64_t column = i / 4 * 8 + i % 4;
    if (column < columns) _mm512_storeu_si512(to + column * line, low[i]);
    if (column + 4 < columns) _mm512_storeu_si512(to + (column + 4) * line, high[i]);
  }
}

}  // namespace

void pack_columns_in_lines(const c10::BFloat16* from, int64_t row_stride, int64_t count, int64_t depth,
                           float* to) {
  const int64_t line = line_of_words((depth + 1) / 2);
  for (int64_t column = 0; column < count; column += kLines) {
    const int64_t columns = std::min(kLines, count - column);
    for (int64_t word = 0; word < line; word += kWordsAtOnce) {
      pack_some(from + column + 2 * word * row_stride, row_stride, columns,
                std::min(kPlacesAtOnce, depth - 2 * word), line, to + column * line + word);
    }
  }
}

#else

// There are no such tiles then.
void pack_columns_in_lines(const c10::BFloat16*, int64_t, int64_t, int64_t, float*) {}

#endif

}  // namespace trainer
