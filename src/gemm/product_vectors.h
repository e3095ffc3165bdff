// Vectors of 16 numbers (AVX-512) for tiles of sums: scale and add them, round and store them.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

#include "gemm/product_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TRAINER_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define TRAINER_AVX512_INLINE TRAINER_AVX512 inline __attribute__((always_inline))

namespace trainer {

inline constexpr int kVector = 16;

TRAINER_AVX512_INLINE void prefetch_line(const void* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

// The first `count` of 16; at least one.
TRAINER_AVX512_INLINE __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= kVector ? 0xFFFF : (1 << count) - 1);
}

// Rounds and stores. Numbers below 1e-38 become 0. Needs AVX512-BF16, as the next one.
TRAINER_AVX512_INLINE void store_rounded(c10::BFloat16* to, __mmask16 mask, __m512 x) {
  __m256i rounded;
  asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(x));
  _mm256_mask_storeu_epi16(to, mask, rounded);
}

// 32 numbers with one store of 64 bytes.
TRAINER_AVX512_INLINE void store_rounded(c10::BFloat16* to, __m512 first, __m512 second) {
  __m512i rounded;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(rounded) : "v"(first), "v"(second));
  _mm512_storeu_si512(to, rounded);
}

// Returns the new values of 16 columns of c; the mask has a bit for each column that exists.
TRAINER_AVX512_INLINE __m512 sum_of(const TileColumn& column, __m512 products, const float* c,
                                    __mmask16 mask) {
  const __m512 factor = _mm512_set1_ps(column.scale);
  return column.add ? _mm512_fmadd_ps(products, factor, _mm512_maskz_loadu_ps(mask, c))
                    : _mm512_mul_ps(products, factor);
}

}  // namespace trainer

#endif
