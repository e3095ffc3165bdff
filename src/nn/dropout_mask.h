// The hash behind dropout's masks: element `col` of a row is kept if and only if hash(row, col) >= p * 2^32.
// The hash is two multiply-xorshift rounds on 32 bits (constants: Wellons' lowbias32); half of the row's
// 64-bit key is added before the rounds and half between them.
#pragma once

#include <cstdint>

#include "trainer/base/random.h"

#include "nn/vector_math.h"

namespace trainer {

constexpr uint32_t kMaskStride = 0x9e3779b1u, kMaskRound1 = 0x7feb352du, kMaskRound2 = 0x846ca68bu;

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
    uint32_t h = static_cast<uint32_t>(col) * kMaskStride + low;
    h ^= h >> 16;
    h *= kMaskRound1;
    h ^= high;
    h ^= h >> 15;
    h *= kMaskRound2;
    h ^= h >> 16;
    return h >= threshold;
  }

  uint32_t low, high, threshold;
  float scale;
};

}  // namespace trainer
