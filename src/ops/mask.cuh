// Dropout's mask: the hash of src/nn/dropout_mask.h.
#pragma once
#include "device/random_bits.cuh"

struct MaskOptions {
  unsigned long long key;
  unsigned threshold;
  float scale;
};

// The mask of one row.
struct RowMask {
  DEVICE RowMask(long long row_key, const MaskOptions& options)
      : threshold(options.threshold), scale(options.scale) {
    unsigned long long k = static_cast<unsigned long long>(row_key) ^ options.key;
    k += 0x9e3779b97f4a7c15ull;  // SplitMix64's finaliser (base/random.h, mix64)
    k = (k ^ (k >> 30)) * 0xbf58476d1ce4e5b9ull;
    k = (k ^ (k >> 27)) * 0x94d049bb133111ebull;
    k ^= k >> 31;
    low = static_cast<unsigned>(k);
    high = static_cast<unsigned>(k >> 32);
  }

  DEVICE bool keeps(unsigned col) const { return random_bits(low, high, col) >= threshold; }

  unsigned low, high, threshold;
  float scale;
};
