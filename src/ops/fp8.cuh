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
