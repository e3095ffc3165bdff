// The sizes of the blocks in which ggml's types keep values. https://github.com/ggml-org/ggml
// (src/ggml-common.h)
#pragma once

#include <cstdint>

#include "trainer/formats/gguf.h"

#include "formats/q8_0.h"

namespace trainer {

struct GgufBlock {
  int64_t values, bytes;
};

// The block of a type; of f32, f16 and bf16 it is one value.
constexpr GgufBlock gguf_block(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return {1, 4};
    case GgufType::f16:
    case GgufType::bf16:
      return {1, 2};
    case GgufType::q5_0:
      return {32, 22};
    case GgufType::q8_0:
      return {kQ8BlockValues, kQ8BlockBytes};
    case GgufType::q4_k:
      return {256, 144};
    case GgufType::q6_k:
      return {256, 210};
  }
  return {1, 0};
}

}  // namespace trainer
