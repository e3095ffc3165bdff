#include "gemm/product_packing.h"

#include <algorithm>
#include <cstring>

#include "base/vector_math.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainer {
namespace {

TRAINER_VECTORISED void widen_row(const c10::BFloat16* __restrict__ from, int64_t columns,
                                  float* __restrict__ to) {
  for (int64_t column = 0; column < columns; column++) to[column] = static_cast<float>(from[column]);
}

}  // namespace

void widen_rows(const c10::BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                int64_t to_stride) {
  for (int64_t row = 0; row < rows; row++) widen_row(from + row * from_stride, columns, to + row * to_stride);
}

#if defined(__x86_64__)

#define TRAINER_PACK __attribute__((target("avx2,fma")))
#define TRAINER_PACK_INLINE TRAINER_PACK inline __attribute__((always_inline))

namespace {

// Readers of words: eight along a line, eight or four across lines, or one; `second` is the next place of
// `first`, where words are pairs.
struct Fp32Words {
  using T = float;
  static constexpr int64_t places = 1;
  TRAINER_PACK_INLINE static __m256 along(const T* from) { return _mm256_loadu_ps(from); }
  TRAINER_PACK_INLINE static __m256 eight(const T* first, const T*) { return _mm256_loadu_ps(first); }
  TRAINER_PACK_INLINE static __m128 four(const T* first, const T*) { return _mm_loadu_ps(first); }
  TRAINER_PACK_INLINE static float one(const T* first, const T*) { return *first; }
};

struct WidenedWords {
  using T = c10::BFloat16;
  static constexpr int64_t places = 1;
  TRAINER_PACK_INLINE static __m256 along(const T* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  TRAINER_PACK_INLINE static __m256 eight(const T* first, const T*) { return along(first); }
  TRAINER_PACK_INLINE static __m128 four(const T* first, const T*) {
    const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(first));
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
  }
  TRAINER_PACK_INLINE static float one(const T* first, const T*) { return static_cast<float>(*first); }
};

struct PairsOfWords {
  using T = c10::BFloat16;
  static constexpr int64_t places = 2;
  TRAINER_PACK_INLINE static __m256 along(const T* from) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  }
  TRAINER_PACK_INLINE static __m256 eight(const T* first, const T* second) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
    return _mm256_castsi256_ps(_mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b)));
  }
  TRAINER_PACK_INLINE static __m128 four(const T* first, const T* second) {
    const __m128i a = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(first));
    const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(second));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(a, b));
  }
  static float one(const T* first, const T* second) {
    const uint16_t pair[2] = {first->x, second ? second->x : uint16_t{0}};
    float word;
    std::memcpy(&word, pair, sizeof(word));
    return word;
  }
};

TRAINER_PACK_INLINE void transpose8(__m256 (&rows)[8]) {
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

// Stores the first `count` of eight words, 4, 6 or all; writes nothing behind them.
template <int count>
TRAINER_PACK_INLINE void store_first(float* to, __m256 x) {
  if constexpr (count >= 8) {
    _mm256_storeu_ps(to, x);
  } else {
    _mm_storeu_ps(to, _mm256_castps256_ps128(x));
    if constexpr (count == 6) _mm_storel_pi(reinterpret_cast<__m64*>(to + 4), _mm256_extractf128_ps(x, 1));
  }
}

// Copies one panel's words of a place, and reads and writes nothing behind them.
template <class Words, int width>
TRAINER_PACK_INLINE void copy_words(const typename Words::T* first, const typename Words::T* second,
                                    float* to) {
#pragma GCC unroll 4
  for (int line = 0; line + 8 <= width; line += 8)
    _mm256_storeu_ps(to + line, Words::eight(first + line, second + line));
  if constexpr (width % 8 == 4)
    _mm_storeu_ps(to + width - 4, Words::four(first + width - 4, second + width - 4));
  if constexpr (width == 6) {  // two overlapping vectors of four
    const __m128 last = Words::four(first + 2, second + 2);
    _mm_storeu_ps(to, Words::four(first, second));
    _mm_storeh_pi(reinterpret_cast<__m64*>(to + 4), last);
  }
}

// All panels, row by row, with rows ahead fetched: they are often on other pages, where the processor does
// not look by itself.
template <class Words, int width>
TRAINER_PACK void pack_columns_of(const typename Words::T* from, int64_t row_stride, int64_t count,
                                  int64_t depth, float* to) {
  constexpr bool pairs = Words::places == 2;
  constexpr int64_t line = 64 / sizeof(*from), ahead = pairs ? 32 : 8;
  const int64_t words = (depth + Words::places - 1) / Words::places;
  for (int64_t word = 0; word < words; word++, from += Words::places * row_stride, to += width) {
    const bool whole_word = Words::places == 1 || 2 * word + 1 < depth;
    const typename Words::T* const second = whole_word ? from + (Words::places - 1) * row_stride : nullptr;
    for (int64_t place = 0; place < Words::places; place++) {
      for (int64_t column = 0; column < count; column += line)
        _mm_prefetch(reinterpret_cast<const char*>(from + (ahead + place) * row_stride + column),
                     pairs ? _MM_HINT_T1 : _MM_HINT_T0);
    }
    const int64_t whole = whole_word ? count / width * width : 0;
    for (int64_t column = 0; column < whole; column += width)
      copy_words<Words, width>(from + column, second + column, to + column * words);
    for (int64_t panel = whole; panel < count; panel += width) {
      for (int64_t i = 0; i < width; i++) {
        const int64_t column = panel + i;
        to[panel * words + i] =
            column < count ? Words::one(from + column, second ? second + column : nullptr) : 0.0f;
      }
    }
  }
}

// What is prefetched while a panel is packed: the next panel, into the L2 cache, or for lines that are too
// long for that the next part of each line.
enum class Ahead { panel, line };

// Packs eight words of up to eight lines, from the `first` on.
template <class Words, int width, Ahead ahead>
TRAINER_PACK_INLINE void pack_eight_rows(const typename Words::T* from, int64_t row_stride, int64_t count,
                                         int first, float* to) {
  constexpr int rest = width % 8;
  __m256 rows[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    const int row = first + i;
    if (row < width && row < count) {
      if constexpr (ahead == Ahead::panel) {
        _mm_prefetch(reinterpret_cast<const char*>(from + (row + width) * row_stride), _MM_HINT_T1);
      } else {
        _mm_prefetch(reinterpret_cast<const char*>(from + row * row_stride) + 256, _MM_HINT_T0);
      }
      rows[i] = Words::along(from + row * row_stride);
    } else {
      rows[i] = _mm256_setzero_ps();
    }
  }
  transpose8(rows);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    if (rest == 0 || first + 8 <= width) {
      _mm256_storeu_ps(to + i * width + first, rows[i]);
    } else {
      store_first<rest>(to + i * width + first, rows[i]);
    }
  }
}

// One panel, by eight words of all lines; of 32 long lines by eight lines, because more at once are not on
// their way in time.
template <class Words, int width, Ahead ahead>
TRAINER_PACK void pack_rows_of(const typename Words::T* from, int64_t row_stride, int64_t count,
                               int64_t depth, float* to) {
  constexpr int64_t places = 8 * Words::places;
  const int64_t eights = depth / places, at_once = width == 32 && ahead == Ahead::line ? eights : 1;
  for (int64_t done = 0; done < eights; done += at_once) {
#pragma GCC unroll 4
    for (int first = 0; first < width; first += 8) {
      for (int64_t i = done; i < done + at_once; i++)
        pack_eight_rows<Words, width, ahead>(from + i * places, row_stride, count, first, to + i * 8 * width);
    }
  }
  to += eights * 8 * width;
  for (int64_t place = eights * places; place < depth; place += Words::places, to += width) {
    for (int i = 0; i < width; i++) {
      const typename Words::T* const first = from + i * row_stride + place;
      to[i] = i < count ? Words::one(first, place + 1 < depth ? first + 1 : nullptr) : 0.0f;
    }
  }
}

// Calls `with` for the kind of words and the width, as types.
template <class With>
void for_kind(PackedWords words, int64_t width, With with) {
  const auto of = [&]<class Words>(Words) {
    switch (width) {
      case 6:
        return with.template operator()<Words, 6>();
      case 12:
        return with.template operator()<Words, 12>();
      case 16:
        return with.template operator()<Words, 16>();
      default:
        return with.template operator()<Words, 32>();
    }
  };
  switch (words) {
    case PackedWords::fp32:
      return of(Fp32Words{});
    case PackedWords::widened:
      return of(WidenedWords{});
    case PackedWords::pairs:
      return of(PairsOfWords{});
  }
}

}  // namespace

void pack_columns(PackedWords words, const void* from, int64_t row_stride, int64_t count, int64_t depth,
                  int64_t width, float* to) {
  for_kind(words, width, [&]<class Words, int w>() {
    pack_columns_of<Words, w>(static_cast<const typename Words::T*>(from), row_stride, count, depth, to);
  });
}

void pack_rows(PackedWords words, const void* from, int64_t row_stride, int64_t count, int64_t depth,
               int64_t width, float* to) {
  for_kind(words, width, [&]<class Words, int w>() {
    const int64_t size = (depth + Words::places - 1) / Words::places * w;  // words of a panel
    auto at = static_cast<const typename Words::T*>(from);
    // Panels of 12 lines are never too large. Measured on Zen 4.
    const bool whole_panels = w == 12 || depth * static_cast<int64_t>(sizeof(*at)) < 4096;
    for (; count > 0; count -= w, at += w * row_stride, to += size) {
      const int64_t here = std::min<int64_t>(count, w);
      if (whole_panels) {
        pack_rows_of<Words, w, Ahead::panel>(at, row_stride, here, depth, to);
      } else {
        pack_rows_of<Words, w, Ahead::line>(at, row_stride, here, depth, to);
      }
    }
  });
}

#else

// There are no tiles then (gemm/product_tiles.h).
void pack_columns(PackedWords, const void*, int64_t, int64_t, int64_t, int64_t, float*) {}
void pack_rows(PackedWords, const void*, int64_t, int64_t, int64_t, int64_t, float*) {}

#endif

}  // namespace trainer
