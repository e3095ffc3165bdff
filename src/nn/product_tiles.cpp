#include "nn/product_tiles.h"

namespace trainer {

const ProductTiles* fp32_tiles() {
  static const ProductTiles* const found = tiles_of_avx512() ? tiles_of_avx512() : tiles_of_avx2();
  return found;
}

const ProductTiles* bf16_tiles() {
  static const ProductTiles* const found = tiles_of_avx512_bf16();
  return found;
}

}  // namespace trainer
