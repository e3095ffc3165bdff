// Stochastic rounding to bf16, with the bits of src/optim/stochastic_rounding.h.
#pragma once
#include "device/kernels/prelude.cuh"

// 32 random bits of an element.
DEVICE unsigned random_bits(unsigned low, unsigned high, unsigned index) {
  unsigned h = index * 0x9e3779b1u + low;
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= high;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ (h >> 16);
}

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
