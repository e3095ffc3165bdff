// What kernels are given for dropout: MaskOptions in mask.cuh.
#pragma once

#include "base/dropout_mask.h"

namespace trainer {

struct KernelMask {
  KernelMask(int64_t key_, double p)
      : key(static_cast<uint64_t>(key_)),
        threshold(mask_threshold(p)),
        scale(static_cast<float>(1.0 / (1.0 - p))) {}
  uint64_t key;
  uint32_t threshold;
  float scale;
};

}  // namespace trainer
