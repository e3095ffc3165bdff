#include "gemm/product_tiles.h"

#include <algorithm>

namespace trainer {
namespace {

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

void multiply_panels(const ProductTiles& tiles, const ProductPanels& x, const ProductPanels& y, int64_t words,
                     const ProductPlace& place, float scale, bool add) {
  const int64_t step = divided_up(divided_up(words, divided_up(words, tiles.words)), tiles.unit) * tiles.unit;
  for (int64_t word = 0; word < words; word += step) {
    const bool last = word + step >= words;
    for (int64_t column = 0; column < place.columns; column += tiles.columns) {
      tiles.compute({.rows = place.rows,
                     .columns = std::min(tiles.columns, place.columns - column),
                     .words = std::min(step, words - word),
                     .x = x.data + word * x.word_stride,
                     .x_stride = x.stride,
                     .x_row = tiles.x_in_rows || x.line_stride != 1 ? x.line_stride : 0,
                     .y = y.data + column / tiles.columns * y.stride + word * y.word_stride,
                     .y_stride = y.word_stride,
                     .c = place.c + column,
                     .c_stride = place.c_stride,
                     .rounded = last && place.rounded ? place.rounded + column : nullptr,
                     .rounded_stride = place.rounded_stride,
                     .scale = scale,
                     .add = add || word > 0});
    }
  }
}

const ProductTiles* fp32_tiles() {
  static const ProductTiles* const found = tiles_of_avx512() ? tiles_of_avx512() : tiles_of_avx2();
  return found;
}

const ProductTiles* bf16_tiles() {
#if defined(__x86_64__)
  // Intel's dot products of bf16 with AVX-512 run at half the rate of fp32.
  static const ProductTiles* const found = tiles_of_amx_bf16()       ? tiles_of_amx_bf16()
                                           : __builtin_cpu_is("amd") ? tiles_of_avx512_bf16()
                                                                     : nullptr;
  return found;
#else
  return nullptr;
#endif
}

}  // namespace trainer
