// The numbers that bytes of e4m3 stand for (src/ops/fp8.h), on a GPU.
#pragma once
#include "device/prelude.cuh"

// CUDA's own conversion is in a header that NVRTC may lack, and differs in nothing. The bits of a magnitude
// are those of the fp32 number that is 2^120 times smaller, also below the smallest normal one.
DEVICE float fp8_value(unsigned code) {
  const unsigned size = code & 127u;
  const float value = size == 127 ? __uint_as_float(0x7fc00000u) : __uint_as_float(size << 20) * 0x1p120f;
  return code < 128 ? value : -value;
}

// The byte nearest to x, ties to even; that of +-448 if x is beyond it.
DEVICE unsigned fp8_code(float x) {
  const unsigned bits = __float_as_uint(x), sign = bits >> 24 & 128u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 127u;
  const float magnitude = __uint_as_float(size);
  if (magnitude >= 448.0f) return sign | 126u;
  // Below the smallest normal number, 2^-6, codes are 2^-9 apart, as fp32's numbers from 2^14 on are.
  if (magnitude < 0x1p-6f) return sign | (__float_as_uint(magnitude + 0x1p14f) - __float_as_uint(0x1p14f));
  return sign | (((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - (120u << 3));
}
