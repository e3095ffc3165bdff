// The scales of weights in NF4 (src/ops/nf4.h), on a GPU.
#pragma once
#include "device/prelude.cuh"

// The scale of a block with double quantisation: of its 8-bit code, which stands for `of_code`, the scale of
// its 256 codes and the mean of all scales.
DEVICE float nested_scale(float of_code, float nested, float offset) {
  return __fadd_rn(__fmul_rn(of_code, nested), offset);
}
