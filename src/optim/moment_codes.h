// The 8-bit codes of 8-bit AdamW's moments.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "optim/moment_search.h"

namespace trainer {

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
