// 32 random bits of an element, as in base/random_bits.h.
#pragma once
#include "device/prelude.cuh"

DEVICE unsigned random_bits(unsigned low, unsigned high, unsigned index) {
  unsigned h = index * 0x9e3779b1u + low;
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= high;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ (h >> 16);
}
