// 32 random bits of an element from a 64-bit key: Wellons' lowbias32, with half of the key added before its
// rounds and half between them. In kernels: src/device/random_bits.cuh. Always inlined, because the
// loops that call it are compiled for several processors.
#pragma once

#include <cstdint>

#include "base/vectorised.h"

namespace trainer {

inline constexpr uint32_t kRandomStride = 0x9e3779b1u, kRandomRound1 = 0x7feb352du,
                          kRandomRound2 = 0x846ca68bu;

// A loop can count up `sum`, which is index * kRandomStride + low.
TRAINER_INLINE uint32_t mixed_bits(uint32_t sum, uint32_t high) {
  uint32_t h = sum;
  h ^= h >> 16;
  h *= kRandomRound1;
  h ^= high;
  h ^= h >> 15;
  h *= kRandomRound2;
  return h ^ (h >> 16);
}

// low, high: the halves of the key.
TRAINER_INLINE uint32_t random_bits(uint32_t low, uint32_t high, uint32_t index) {
  return mixed_bits(index * kRandomStride + low, high);
}

}  // namespace trainer
