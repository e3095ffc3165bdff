// Stochastic rounding to bf16, with the bits of src/optim/stochastic_rounding.h.
#pragma once
#include "device/random_bits.cuh"

// fp32 to T. bf16 rounds up with the probability of the part that is cut off. Infinities and NaN stay as they
// are.
template <class T>
DEVICE T rounded_by(float value, unsigned /*bits*/) {
  return value;
}
template <>
DEVICE bf16 rounded_by<bf16>(float value, unsigned bits) {
  const unsigned pattern = __float_as_uint(value);
  const bool finite = (pattern & 0x7f800000u) != 0x7f800000u;
  return {static_cast<unsigned short>((finite ? pattern + (bits & 0xffffu) : pattern) >> 16)};
}
