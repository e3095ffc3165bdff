#include "optim/moment_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <immintrin.h>
#include <limits>

#include "trainer/formats/dynamic_map.h"

namespace trainer {
namespace {

// Smaller magnitudes count to its binade. Its exponent is the place of that in MomentSearch, modulo 32.
constexpr float kSmallest = 0x1p-24f;
constexpr size_t kSmallestPlace = 127 - 24;

// A place in the codes whose distance to a whole number is less than this is searched for. Rounding moves it
// by less than a fifth of this.
constexpr float kDoubtful = 1e-4f;

// Where a level begins in MomentSearch::levels.
constexpr std::array<size_t, 8> kLevelPlaces{0, 16, 32, 48, 64, 80, 112, 176};

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

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq")))
#define AVX512_VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))
// GCC 12 warns of variables in its own functions where there is no mask.
constexpr __mmask16 kAll = 0xffff;

// Returns table[index] of `registers` x 16 entries, a power of two from 2 on. Higher bits of the index are
// ignored.
template <int registers>
AVX512 inline __m512 entries_of(const __m512* table, __m512i index) {
  if constexpr (registers == 2) {
    return _mm512_permutex2var_ps(table[0], index, table[1]);
  } else {
    const __mmask16 upper = _mm512_test_epi32_mask(index, _mm512_set1_epi32(8 * registers));
    return _mm512_mask_blend_ps(upper, entries_of<registers / 2>(table, index),
                                entries_of<registers / 2>(table + registers / 2, index));
  }
}

// A binary search in eight comparisons: after each, `found` is the place in the next level.
AVX512 __m512i search_avx512(const MomentSearch& search, __m512 x) {
  __m512 table[19];
  for (int i = 0; i < 19; i++) table[i] = _mm512_load_ps(search.levels.data() + 16 * i);
  __m512i found = _mm512_setzero_si512();
  const auto compare = [&](__m512 limit) AVX512 {
    const __mmask16 above = _mm512_cmp_ps_mask(x, limit, _CMP_GE_OQ);
    found = _mm512_add_epi32(found, found);
    found = _mm512_mask_add_epi32(found, above, found, _mm512_set1_epi32(1));
  };
  for (int level = 0; level < 5; level++) compare(_mm512_maskz_permutexvar_ps(kAll, found, table[level]));
  compare(entries_of<2>(table + 5, found));
  compare(entries_of<4>(table + 7, found));
  compare(entries_of<8>(table + 11, found));
  return found;
}

// Returns what the decade, and with a sign 16 for a negative value, says.
template <bool with_sign>
AVX512 inline __m512 of_decade(const __m512* table, __m512i decade) {
  if constexpr (with_sign) {
    return entries_of<2>(table, decade);
  } else {
    return _mm512_maskz_permutexvar_ps(kAll, decade, table[0]);
  }
}

template <bool with_sign>
AVX512 void encode_avx512(const MomentSearch& search, const float* values, float factor, uint8_t* out) {
  const __m512 borders[2] = {_mm512_load_ps(search.borders.data()),
                             _mm512_load_ps(search.borders.data() + 16)},
               slopes[2] = {_mm512_load_ps(search.slopes.data()), _mm512_load_ps(search.slopes.data() + 16)},
               offsets[2] = {_mm512_load_ps(search.offsets.data()),
                             _mm512_load_ps(search.offsets.data() + 16)};
  const __m512i decades[2] = {_mm512_load_si512(search.decades.data()),
                              _mm512_load_si512(search.decades.data() + 16)};
  const __m512 ends = _mm512_load_ps(search.ends.data()), smallest = _mm512_set1_ps(kSmallest),
               doubt = _mm512_set1_ps(2 * kDoubtful), factors = _mm512_set1_ps(factor);
  const __m512i one = _mm512_set1_epi32(1), minus = _mm512_set1_epi32(16),
                magnitude = _mm512_set1_epi32(0x7fffffff);
  const auto code_of = [&](__m512 x) AVX512 {
    // NaN stays NaN.
    __m512 size = _mm512_maskz_max_ps(
        kAll, smallest, _mm512_castsi512_ps(_mm512_and_epi32(_mm512_castps_si512(x), magnitude)));
    const __m512i binade = _mm512_maskz_srli_epi32(kAll, _mm512_castps_si512(size), 23);
    __m512i decade = _mm512_permutex2var_epi32(decades[0], binade, decades[1]);
    const __mmask16 beyond = _mm512_cmp_ps_mask(size, entries_of<2>(borders, binade), _CMP_GE_OQ);
    decade = _mm512_mask_add_epi32(decade, beyond, decade, one);
    size = _mm512_maskz_min_ps(kAll, size, _mm512_maskz_permutexvar_ps(kAll, decade, ends));
    if constexpr (with_sign) {
      const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
      decade = _mm512_mask_add_epi32(decade, negative, decade, minus);
    }
    const __m512 place =
        _mm512_fmadd_ps(size, of_decade<with_sign>(slopes, decade), of_decade<with_sign>(offsets, decade));
    __m512i code = _mm512_maskz_cvttps_epi32(kAll, place);
    const __mmask16 doubtful =
        _mm512_cmp_ps_mask(_mm512_maskz_reduce_ps(kAll, place, _MM_FROUND_TO_ZERO), doubt, _CMP_LT_OQ);
    if (doubtful != 0) [[unlikely]]
      code = search_avx512(search, x);
    return code;
  };
  // Packing works on quarters of a register.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int i = 0; i < 256; i += 64) {
    __m512i code[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
      code[k] = code_of(_mm512_mul_ps(_mm512_loadu_ps(values + i + 16 * k), factors));
    const __m512i packed =
        _mm512_packus_epi16(_mm512_packus_epi32(code[0], code[1]), _mm512_packus_epi32(code[2], code[3]));
    _mm512_storeu_si512(out + i, _mm512_maskz_permutexvar_epi32(kAll, order, packed));
  }
}

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
    const __m512i index = _mm512_maskz_permutexvar_epi32(kAll, order, _mm512_loadu_si512(codes + i));
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

#undef AVX512
#undef AVX512_VBMI

bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  return has;
}

bool has_avx512_vbmi() {
  static const bool has =
      has_avx512() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi");
  return has;
}

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

MomentSearch::MomentSearch(const MomentCodes& codes) : with_sign(codes.values[0] < 0.0f) {
  const size_t zero = with_sign ? 127 : 0;
  borders.fill(std::numeric_limits<float>::infinity());
  // Decades 1 to 7 have 1, 2, 4, ... values, or 2, 4, 8, ... without a sign; 0 and 8 are the 0 and the 1.
  size_t rank = 0, values = 1;
  std::array<float, 9> begins{};  // the first limits
  for (size_t decade = 0; decade <= 8; decade++) {
    if (decade > 0) begins[decade] = codes.limits[zero + rank - 1];
    const double size = std::pow(10.0, static_cast<double>(decade) - 7.0),
                 width = 0.9 * size / static_cast<double>(values);
    const bool even = decade > 0 && decade < 8 && values > 1;
    const double slope = even ? 1.0 / width : 0.0, offset = even ? -0.1 * size / width : 0.5,
                 first = static_cast<double>(zero + rank);
    slopes[decade] = static_cast<float>(slope);
    offsets[decade] = static_cast<float>(first + offset + kDoubtful);
    ends[decade] = even ? static_cast<float>((static_cast<double>(values) - 0.5 - offset) / slope) : 1.0f;
    // A negative value counts downwards, from at least 1 and not beyond the last decade.
    const double rank_below = std::clamp(static_cast<double>(rank), 1.0, 127.0);
    slopes[16 + decade] = static_cast<float>(-slope);
    offsets[16 + decade] = static_cast<float>(128.0 - rank_below - offset + kDoubtful);
    rank += values;
    values = decade == 0 ? (with_sign ? 1 : 2) : decade == 7 ? 1 : 2 * values;
  }
  for (size_t i = 0; i < 32; i++) {
    const float begin = std::ldexp(kSmallest, static_cast<int>(i));
    const size_t place = (kSmallestPlace + i) % 32;
    for (int decade = 1; decade <= 8; decade++) {
      const float border = begins[static_cast<size_t>(decade)];
      if (border <= begin) decades[place] = decade;
      if (border > begin && border < 2 * begin) borders[place] = border;
    }
  }
  for (size_t level = 0; level < kLevelPlaces.size(); level++) {
    const size_t distance = size_t{256} >> level;
    for (size_t i = 0; i < (size_t{1} << level); i++)
      levels[kLevelPlaces[level] + i] = codes.limits[i * distance + distance / 2 - 1];
  }
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

uint8_t MomentCoder::code_of(float scaled) const {
  const auto above = std::ranges::upper_bound(codes_.limits, scaled);
  return static_cast<uint8_t>(above - codes_.limits.begin());
}

// No cell has values of more than two codes.
uint32_t MomentCoder::make_cell(uint32_t upper_bits) const {
  const auto code = [&](uint32_t lower_bits) {
    return code_of(std::bit_cast<float>((upper_bits << 16) | lower_bits));
  };
  uint32_t same = 0, other = 0x10000;  // a lower half with the code of 0, and one with another code
  if (code(0xffff) == code(0)) same = other;
  while (other - same > 1) {
    const uint32_t middle = (same + other) / 2;
    (code(middle) == code(0) ? same : other) = middle;
  }
  return (uint32_t{code(0)} << 24) | other;
}

void MomentCoder::decode(std::span<const uint8_t, 256> codes, MomentBlock values) const {
  if (has_avx512_vbmi()) return decode_avx512(bytes_, codes.data(), values.data());
  decode_anywhere(codes, values);
}

void MomentCoder::encode(std::span<const float, 256> values, float factor, CodeBlock codes) const {
  if (!has_avx512()) return encode_anywhere(values, factor, codes);
  const auto encode = search_.with_sign ? encode_avx512<true> : encode_avx512<false>;
  encode(search_, values.data(), factor, codes.data());
}

void MomentCoder::decode_anywhere(std::span<const uint8_t, 256> codes, MomentBlock values) const {
  for (size_t i = 0; i < 256; i++) values[i] = codes_.values[codes[i]];
}

void MomentCoder::encode_anywhere(std::span<const float, 256> values, float factor, CodeBlock codes) const {
  for (size_t i = 0; i < 256; i++) {
    const float scaled = values[i] * factor;
    const bool negative = scaled < 0.0f;
    const uint32_t bits = std::bit_cast<uint32_t>(std::fabs(scaled));
    const int cell = std::clamp(static_cast<int>(bits >> 16) - kFirstCell, 0, kCells - 1);
    const uint32_t entry = cells_[static_cast<size_t>(negative ? kCells + cell : cell)];
    const int next = (bits & 0xffffu) >= (entry & 0x1ffffu) ? 1 : 0;
    codes[i] = static_cast<uint8_t>(static_cast<int>(entry >> 24) + (negative ? -next : next));
  }
}

}  // namespace trainer
