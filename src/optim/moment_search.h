// The search for the 8-bit codes of moments with vector instructions.
#pragma once

#include <array>
#include <cstdint>

namespace trainer {

// limits[i] is the smallest scaled value whose code is above i; the last one is infinite. That gives the
// nearest value. In the middle between two the even code is taken, as by quantize_2D of bitsandbytes; and a
// negative value never gets the code of 0, so that it keeps its sign.
struct MomentCodes {
  alignas(64) std::array<float, 256> values, limits;
};

// What a processor can search with. The later ones are faster.
enum class Instructions { any, avx2, avx512 };
Instructions best_instructions();  // of this processor

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

}  // namespace trainer
