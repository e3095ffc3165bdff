// The 8-bit codes of 8-bit AdamW's moments, and the search for them with vector instructions.
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

// Instruction sets for the search. The later ones are faster.
enum class Instructions { any, avx2, avx512 };
Instructions best_instructions();  // the last that this processor has

// The places of 256 values that a search leaves open, one bit each, the lowest first.
using OpenPlaces = std::array<uint64_t, 4>;

// The limits between the codes of magnitudes, by decades. In a decade they are evenly spaced, so that a
// product and a sum give the place of a magnitude between them: its code and a fraction. A place next to a
// limit, where rounding could decide, stays open.
class MomentSearch {
 public:
  explicit MomentSearch(const MomentCodes& codes);

  // Writes the codes of 256 values times `factor`, and something for those whose places are open. `with`: not
  // `any`.
  OpenPlaces encode(const float* values, float factor, uint8_t* codes, Instructions with) const;

 private:
  template <bool with_sign>
  OpenPlaces encode_avx2(const float* values, float factor, uint8_t* codes) const;
  template <bool with_sign>
  OpenPlaces encode_avx512(const float* values, float factor, uint8_t* codes) const;

  // The decade at the beginning of two binades. Their number, modulo 16, is half of the exponent's bits.
  alignas(64) std::array<int8_t, 16> decades_{};
  // By the decade: the limit at which the next one begins, and the largest magnitude that tells places apart.
  // A place is that times the slope plus the offset. 8 more: of negative values, which count downwards.
  alignas(64) std::array<float, 16> borders_{}, ends_{}, slopes_{}, offsets_{};
  bool with_sign_;
};

const MomentCodes& codes_of_exp_avg();     // of values from -1 to 1
const MomentCodes& codes_of_exp_avg_sq();  // of values from 0 to 1

// A block of moments and their codes.
using MomentBlock = std::span<float, 256>;
using CodeBlock = std::span<uint8_t, 256>;

// The values of codes by their bytes, the lowest one first, which AVX-512 VBMI decodes with.
struct alignas(64) MomentBytes : std::array<std::array<uint8_t, 256>, 4> {};

// Both ways for a whole block on the CPU. The results are the same whatever instructions find them; those
// that are asked for must be ones of this processor.
class MomentCoder {
 public:
  explicit MomentCoder(const MomentCodes& codes);

  // Writes the value of each code.
  void decode(std::span<const uint8_t, 256> codes, MomentBlock values,
              Instructions with = best_instructions()) const;
  // Writes the code of each value times `factor`, which is at least -1 and at most 1, up to rounding.
  void encode(std::span<const float, 256> values, float factor, CodeBlock codes,
              Instructions with = best_instructions()) const;

 private:
  // Cells of values with the same upper 16 bits. The first 23 binades below 1, of 128 cells each, and 1
  // itself; once for values from 0 on and once for negative ones. Smaller values count to the first cell.
  static constexpr int kFirstCell = (127 - 23) << 7, kCells = 23 * 128 + 1;
  uint32_t make_cell(uint32_t upper_bits) const;
  uint8_t search(float scaled) const;
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
