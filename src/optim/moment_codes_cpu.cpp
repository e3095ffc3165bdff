#include <algorithm>
#include <bit>
#include <cmath>
#include <immintrin.h>
#include <limits>

#include "formats/bitsandbytes.h"
#include "optim/moment_codes.h"

namespace trainer {
namespace {

// Smaller magnitudes, which all have the first code, count as this.
constexpr float kSmallest = 0x1p-24f;

// Places are counted in this part of a code, as integers. A place that is less than kDoubt above or below a
// limit is open. Rounding moves it by less than a fifth of this.
constexpr float kOne = 65536.0f, kDoubt = 8.0f;
constexpr int kBits = 16, kClear = 0xfff0;  // the bits of a place, and those that an open one has not

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw")))
// GCC 12 warns of variables in its own functions where there is no mask.
constexpr __mmask16 kEvery = 0xffff;

}  // namespace

MomentSearch::MomentSearch(const MomentCodes& codes) : with_sign_(codes.values[0] < 0.0f) {
  const size_t zero = with_sign_ ? 127 : 0;
  const auto limit = [&](size_t rank) { return codes.limits[zero + rank]; };  // between it and the next one
  // Decades 1 to 6 end at 1e-5, 1e-4, ..., 1 and have 2, 4, ..., 64 values, or twice as many without a sign.
  // 0 is all below, and 7 the 1. `first`: the rank of the decade's first value.
  borders_.fill(std::numeric_limits<float>::infinity());
  for (size_t decade = 0, first = 0; decade < 8; decade++) {
    const size_t few = with_sign_ ? 2 : 3, count = decade == 0 ? few : with_sign_ ? 1 << decade : 2 << decade;
    const double size = std::pow(10.0, static_cast<double>(decade) - 6.0);
    const double below = with_sign_ ? 2.0 * limit(0) : limit(1) - limit(0);
    double width = 0.9 * size / static_cast<double>(count), begin = 0.1 * size;
    if (decade == 0) width = below, begin = limit(0) - below;
    const auto rank = static_cast<double>(first);
    const auto put = [&](size_t place, double end, double slope, double offset) {
      ends_[place] = static_cast<float>(end);
      slopes_[place] = static_cast<float>(slope * kOne);
      offsets_[place] = static_cast<float>(offset * kOne + kDoubt);
    };
    if (decade == 7) {
      put(decade, 1.0, 0.0, 255.5);
      put(8 + decade, 1.0, 0.0, 0.5);
      break;
    }
    const double end = begin + (static_cast<double>(count) - 0.5) * width,
                 offset = static_cast<double>(zero) + rank - begin / width;
    put(decade, end, 1.0 / width, offset);
    if (decade == 0) {
      put(8, end, 0.0, 126.5);  // it keeps its sign
    } else {
      put(8 + decade, end, -1.0 / width, 255.0 - offset);
    }
    first += count;
    borders_[decade] = borders_[8 + decade] = limit(first - 1);
  }
  for (size_t i = 0; i < 12; i++) {
    const auto two_binades = static_cast<uint32_t>(52 + i);
    const float begin = std::bit_cast<float>(two_binades << 24);
    int8_t& decade = decades_[two_binades % 16];
    while (decade < 7 && borders_[static_cast<size_t>(decade)] <= begin) decade++;
  }
}

// Eight at a time. Ranks of magnitudes become codes at the end.
template <bool with_sign>
AVX2 OpenPlaces MomentSearch::encode_avx2(const float* values, float factor, uint8_t* codes) const {
  const __m256 borders = _mm256_load_ps(borders_.data()), ends = _mm256_load_ps(ends_.data()),
               slopes = _mm256_load_ps(slopes_.data()), smallest = _mm256_set1_ps(kSmallest),
               factors = _mm256_set1_ps(factor);
  const __m256 offsets =
      _mm256_sub_ps(_mm256_load_ps(offsets_.data()), _mm256_set1_ps(with_sign ? 127 * kOne : 0));
  const __m256i decades = _mm256_broadcastsi128_si256(
                    _mm_load_si128(reinterpret_cast<const __m128i*>(decades_.data()))),
                zero = _mm256_set1_epi32(127), clear = _mm256_set1_epi32(kClear);
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  // The quarters of two registers alternate after packing.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  OpenPlaces open{};
  for (size_t i = 0; i < 256; i += 32) {
    __m256i code[4];
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
      const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(values + i + 8 * k), factors);
      __m256 size = _mm256_max_ps(smallest, with_sign ? _mm256_and_ps(x, magnitude) : x);
      __m256i decade = _mm256_shuffle_epi8(decades, _mm256_srli_epi32(_mm256_castps_si256(size), 24));
      const __m256 border = _mm256_permutevar8x32_ps(borders, decade);
      decade = _mm256_sub_epi32(decade, _mm256_castps_si256(_mm256_cmp_ps(size, border, _CMP_GE_OQ)));
      size = _mm256_min_ps(size, _mm256_permutevar8x32_ps(ends, decade));
      const __m256i place = _mm256_cvttps_epi32(_mm256_fmadd_ps(
          size, _mm256_permutevar8x32_ps(slopes, decade), _mm256_permutevar8x32_ps(offsets, decade)));
      const __m256i doubtful = _mm256_cmpeq_epi32(_mm256_and_si256(place, clear), _mm256_setzero_si256());
      const auto bits = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(doubtful)));
      open[i / 64] |= uint64_t{bits} << (i % 64 + 8 * k);
      code[k] = _mm256_srli_epi32(place, kBits);
      if constexpr (with_sign) {
        const __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
        const __m256i least = _mm256_srli_epi32(_mm256_castps_si256(negative), 31);  // it keeps its sign
        code[k] = _mm256_sign_epi32(_mm256_max_epi32(code[k], least), _mm256_castps_si256(x));
        code[k] = _mm256_add_epi32(code[k], zero);
      }
    }
    const __m256i packed =
        _mm256_packus_epi16(_mm256_packus_epi32(code[0], code[1]), _mm256_packus_epi32(code[2], code[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_permutevar8x32_epi32(packed, order));
  }
  return open;
}

// Sixteen at a time.
template <bool with_sign>
AVX512 OpenPlaces MomentSearch::encode_avx512(const float* values, float factor, uint8_t* codes) const {
  const __m512 borders = _mm512_load_ps(borders_.data()), ends = _mm512_load_ps(ends_.data()),
               slopes = _mm512_load_ps(slopes_.data()), offsets = _mm512_load_ps(offsets_.data()),
               smallest = _mm512_set1_ps(kSmallest), factors = _mm512_set1_ps(factor);
  const __m512i decades = _mm512_maskz_broadcast_i32x4(
                    kEvery, _mm_load_si128(reinterpret_cast<const __m128i*>(decades_.data()))),
                one = _mm512_set1_epi32(1), minus = _mm512_set1_epi32(8), clear = _mm512_set1_epi32(kClear),
                magnitude = _mm512_set1_epi32(0x7fffffff);
  // Packing works on quarters of a register.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  OpenPlaces open;
  for (size_t i = 0; i < 256; i += 64) {
    __m512i code[4];
    uint64_t doubtful = 0;
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
      const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(values + i + 16 * k), factors);
      const __m512 positive =
          with_sign ? _mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(x), magnitude)) : x;
      __m512 size = _mm512_maskz_max_ps(kEvery, smallest, positive);
      __m512i decade =
          _mm512_shuffle_epi8(decades, _mm512_maskz_srli_epi32(kEvery, _mm512_castps_si512(size), 24));
      const __mmask16 beyond =
          _mm512_cmp_ps_mask(size, _mm512_maskz_permutexvar_ps(kEvery, decade, borders), _CMP_GE_OQ);
      decade = _mm512_mask_add_epi32(decade, beyond, decade, one);
      size = _mm512_maskz_min_ps(kEvery, size, _mm512_maskz_permutexvar_ps(kEvery, decade, ends));
      if constexpr (with_sign) {
        const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
        decade = _mm512_mask_add_epi32(decade, negative, decade, minus);
      }
      const __m512i place = _mm512_maskz_cvttps_epi32(
          kEvery, _mm512_fmadd_ps(size, _mm512_maskz_permutexvar_ps(kEvery, decade, slopes),
                                  _mm512_maskz_permutexvar_ps(kEvery, decade, offsets)));
      doubtful |= uint64_t{_mm512_testn_epi32_mask(place, clear)} << (16 * k);
      code[k] = _mm512_maskz_srli_epi32(kEvery, place, kBits);
    }
    open[i / 64] = doubtful;
    const __m512i packed =
        _mm512_packus_epi16(_mm512_packus_epi32(code[0], code[1]), _mm512_packus_epi32(code[2], code[3]));
    _mm512_storeu_si512(codes + i, _mm512_maskz_permutexvar_epi32(kEvery, order, packed));
  }
  return open;
}

#undef AVX2
#undef AVX512

OpenPlaces MomentSearch::encode(const float* values, float factor, uint8_t* codes, Instructions with) const {
  if (with == Instructions::avx512) {
    return with_sign_ ? encode_avx512<true>(values, factor, codes)
                      : encode_avx512<false>(values, factor, codes);
  }
  return with_sign_ ? encode_avx2<true>(values, factor, codes) : encode_avx2<false>(values, factor, codes);
}

// AVX-512 counts with VBMI, which decodes with it.
Instructions best_instructions() {
  static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512vbmi");
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return avx512 ? Instructions::avx512 : avx2 ? Instructions::avx2 : Instructions::any;
}

namespace {

MomentCodes codes_of(bool with_sign) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  MomentCodes codes{dynamic_map(with_sign), {}};
  for (size_t i = 0; i < 255; i++) {
    const float middle = (codes.values[i] + codes.values[i + 1]) * 0.5f;
    const bool next_is_even = i % 2 == 1;
    codes.limits[i] = next_is_even ? middle : std::nextafter(middle, kInfinity);
    if (codes.values[i + 1] == 0.0f) codes.limits[i] = 0.0f;
  }
  codes.limits[255] = kInfinity;
  return codes;
}

#define AVX512_VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))
// Returns table[index] of each byte.
AVX512_VBMI inline __m512i bytes_of(const __m512i* table, __m512i index) {
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index),
                                _mm512_permutex2var_epi8(table[0], index, table[1]),
                                _mm512_permutex2var_epi8(table[2], index, table[3]));
}

// Looks up the four bytes of a value one by one, for 64 codes at once.
AVX512_VBMI void decode_avx512(const MomentBytes& bytes, const uint8_t* codes, float* out) {
  __m512i table[4][4];
  for (int i = 0; i < 16; i++)
    table[i / 4][i % 4] = _mm512_load_si512(bytes[static_cast<size_t>(i / 4)].data() + 64 * (i % 4));
  // Interleaving works on quarters of a register, so each quarter gets 4 codes of each result.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int i = 0; i < 256; i += 64) {
    const __m512i index = _mm512_maskz_permutexvar_epi32(kEvery, order, _mm512_loadu_si512(codes + i));
    __m512i byte[4];
    for (int k = 0; k < 4; k++) byte[k] = bytes_of(table[k], index);
    const __m512i lower[2] = {_mm512_unpacklo_epi8(byte[0], byte[1]), _mm512_unpackhi_epi8(byte[0], byte[1])},
                  upper[2] = {_mm512_unpacklo_epi8(byte[2], byte[3]), _mm512_unpackhi_epi8(byte[2], byte[3])};
    for (int k = 0; k < 2; k++) {
      _mm512_storeu_si512(out + i + 32 * k, _mm512_unpacklo_epi16(lower[k], upper[k]));
      _mm512_storeu_si512(out + i + 32 * k + 16, _mm512_unpackhi_epi16(lower[k], upper[k]));
    }
  }
}

#undef AVX512_VBMI

}  // namespace

const MomentCodes& codes_of_exp_avg() {
  static const MomentCodes codes = codes_of(true);
  return codes;
}

const MomentCodes& codes_of_exp_avg_sq() {
  static const MomentCodes codes = codes_of(false);
  return codes;
}

const MomentCoder& coder_of_exp_avg() {
  static const MomentCoder coder(codes_of_exp_avg());
  return coder;
}

const MomentCoder& coder_of_exp_avg_sq() {
  static const MomentCoder coder(codes_of_exp_avg_sq());
  return coder;
}

MomentCoder::MomentCoder(const MomentCodes& codes) : codes_(codes), search_(codes) {
  for (size_t i = 0; i < 256; i++) {
    for (size_t k = 0; k < 4; k++)
      bytes_[k][i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(codes.values[i]) >> (8 * k));
  }
  for (uint32_t i = 0; i < kCells; i++) {
    cells_[i] = make_cell(kFirstCell + i);
    cells_[kCells + i] = make_cell((kFirstCell + i) | 0x8000u);
  }
}

uint8_t MomentCoder::search(float scaled) const {
  const auto above = std::ranges::upper_bound(codes_.limits, scaled);
  return static_cast<uint8_t>(above - codes_.limits.begin());
}

// No cell has values of more than two codes.
uint32_t MomentCoder::make_cell(uint32_t upper_bits) const {
  const auto code = [&](uint32_t lower_bits) {
    return search(std::bit_cast<float>((upper_bits << 16) | lower_bits));
  };
  uint32_t same = 0, other = 0x10000;  // a lower half with the code of 0, and one with another code
  if (code(0xffff) == code(0)) same = other;
  while (other - same > 1) {
    const uint32_t middle = (same + other) / 2;
    (code(middle) == code(0) ? same : other) = middle;
  }
  return (uint32_t{code(0)} << 24) | other;
}

inline uint8_t MomentCoder::code_of(float scaled) const {
  const bool negative = scaled < 0.0f;
  const uint32_t bits = std::bit_cast<uint32_t>(std::fabs(scaled));
  const int cell = std::clamp(static_cast<int>(bits >> 16) - kFirstCell, 0, kCells - 1);
  const uint32_t entry = cells_[static_cast<size_t>(negative ? kCells + cell : cell)];
  const int next = (bits & 0xffffu) >= (entry & 0x1ffffu) ? 1 : 0;
  return static_cast<uint8_t>(static_cast<int>(entry >> 24) + (negative ? -next : next));
}

void MomentCoder::decode(std::span<const uint8_t, 256> codes, MomentBlock values, Instructions with) const {
  if (with == Instructions::avx512) return decode_avx512(bytes_, codes.data(), values.data());
  for (size_t i = 0; i < 256; i++) values[i] = codes_.values[codes[i]];
}

void MomentCoder::encode(std::span<const float, 256> values, float factor, CodeBlock codes,
                         Instructions with) const {
  if (with == Instructions::any) {
    for (size_t i = 0; i < 256; i++) codes[i] = code_of(values[i] * factor);
    return;
  }
  const OpenPlaces open = search_.encode(values.data(), factor, codes.data(), with);
  for (size_t word = 0; word < open.size(); word++) {
    for (uint64_t left = open[word]; left != 0; left &= left - 1) {
      const size_t i = 64 * word + static_cast<size_t>(std::countr_zero(left));
      codes[i] = code_of(values[i] * factor);
    }
  }
}

}  // namespace trainer
