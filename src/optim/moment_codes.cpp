#include "optim/moment_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <immintrin.h>
#include <limits>

#include "formats/dynamic_map.h"

namespace trainer {
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
// GCC 12 warns of variables in its own functions where there is no mask.
constexpr __mmask16 kAll = 0xffff;

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
