#include "nn/product_tiles.h"

namespace trainer {

const ProductTiles* fp32_tiles() {
  static const ProductTiles* const found = tiles_of_avx512() ? tiles_of_avx512() : tiles_of_avx2();
  return found;
}

const ProductTiles* bf16_tiles() {
#if defined(__x86_64__)
  // Intel's bf16 dot products run at half the rate of fp32.
  static const ProductTiles* const found = __builtin_cpu_is("amd") ? tiles_of_avx512_bf16() : nullptr;
  return found;
#else
  return nullptr;
#endif
}

}  // namespace trainer
