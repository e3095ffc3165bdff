// Dropout's masks: element `col` of a row is kept if and only if its random bits, by the row's key, are at
// least p * 2^32.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "base/vector_math.h"

namespace trainer {

// 32 random bits of an element from a 64-bit key: Wellons' lowbias32, with half of the key added before its
// rounds and half between them. In kernels: src/device/random_bits.cuh. Always inlined, because the
// loops that call it are compiled for several processors.

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

// Returns the number that a head of attention adds to the dropout keys of its rows.
inline int64_t dropout_key_of_head(int64_t head) { return head * (int64_t{1} << 24); }

inline uint32_t mask_threshold(double p) { return static_cast<uint32_t>(p * 4294967296.0); }

// The mask of one row.
struct RowMask {
  RowMask(int64_t row_key, int64_t key, double p)
      : threshold(mask_threshold(p)), scale(static_cast<float>(1.0 / (1.0 - p))) {
    const uint64_t k = mix64(static_cast<uint64_t>(row_key) ^ static_cast<uint64_t>(key));
    low = static_cast<uint32_t>(k);
    high = static_cast<uint32_t>(k >> 32);
  }

  TRAINER_INLINE bool keeps(int64_t col) const {
    return random_bits(low, high, static_cast<uint32_t>(col)) >= threshold;
  }

  // Returns x, which is element `col`, after dropout.
  template <class T>
  TRAINER_INLINE T drop(T x, int64_t col) const {
    return keeps(col) ? static_cast<T>(rounded(static_cast<float>(x) * scale)) : static_cast<T>(0.0f);
  }

  uint32_t low, high, threshold;
  float scale;
};

}  // namespace trainer
