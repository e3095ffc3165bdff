// The 8-bit codes of 8-bit AdamW's moments, and the search for the code of a value.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trainer {

// limits[i] is the smallest scaled value whose code is above i; the last one is infinite. That gives the
// nearest value. In the middle between two the even code is taken, as by quantize_2D of bitsandbytes; and a
// negative value never gets the code of 0, so that it keeps its sign.
struct MomentCodes {
  alignas(64) std::array<float, 256> values, limits;
};
const MomentCodes& codes_of_exp_avg();     // of values from -1 to 1
const MomentCodes& codes_of_exp_avg_sq();  // of values from 0 to 1

// A block of moments and their codes.
using MomentBlock = std::span<float, 256>;
using CodeBlock = std::span<uint8_t, 256>;

// What AVX-512 finds codes with: a value's binade gives its decade, and each decade has evenly spaced limits.
// Next to a limit, where rounding could decide, a binary search in the limits themselves is the answer.
struct MomentSearch {
  explicit MomentSearch(const MomentCodes& codes);

  // By the lower 5 bits of the magnitude's exponent, from 2^-24 on (smaller ones count to the first): the
  // limit in that binade at which a decade begins, if there is one, and the decade at its beginning.
  alignas(64) std::array<float, 32> borders;
  alignas(64) std::array<int32_t, 32> decades{};
  // By the decade, 16 more for a negative value: a magnitude of at most `ends` times `slopes` plus `offsets`
  // is its code, a fraction and what is doubted. Below the first decade, the 0, and beyond the last one, the
  // 1, slopes are 0.
  alignas(64) std::array<float, 32> slopes{}, offsets{};
  alignas(64) std::array<float, 16> ends{};
  // Limits by the level of a binary search. Level k has 2^k of them.
  alignas(64) std::array<float, 304> levels{};
  bool with_sign;
};

// The values of codes by their bytes, the lowest one first, which AVX-512 VBMI decodes with.
struct alignas(64) MomentBytes : std::array<std::array<uint8_t, 256>, 4> {};

// Both ways for a whole block on the CPU. The results are the same on every processor.
class MomentCoder {
 public:
  explicit MomentCoder(const MomentCodes& codes);

  // Writes the value of each code.
  void decode(std::span<const uint8_t, 256> codes, MomentBlock values) const;
  // Writes the code of each value times `factor`, which is at least -1 and at most 1, up to rounding.
  void encode(std::span<const float, 256> values, float factor, CodeBlock codes) const;
  // The same without AVX-512.
  void decode_anywhere(std::span<const uint8_t, 256> codes, MomentBlock values) const;
  void encode_anywhere(std::span<const float, 256> values, float factor, CodeBlock codes) const;

 private:
  // Cells of values with the same upper 16 bits. The first 23 binades below 1, of 128 cells each, and 1
  // itself; once for values from 0 on and once for negative ones. Smaller values count to the first cell.
  static constexpr int kFirstCell = (127 - 23) << 7, kCells = 23 * 128 + 1;
  uint32_t make_cell(uint32_t upper_bits) const;
  uint8_t code_of(float scaled) const;

  MomentCodes codes_;
  MomentSearch search_;
  MomentBytes bytes_;
  // The code of the cell's smallest magnitude, shifted by 24, and the lower 16 bits from which on a value of
  // the cell has the next one; 2^16 if none has.
  std::array<uint32_t, 2 * kCells> cells_;
};
const MomentCoder& coder_of_exp_avg();
const MomentCoder& coder_of_exp_avg_sq();

}  // namespace trainer
