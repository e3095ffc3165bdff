#include "nn/product_tiles.h"

#include <algorithm>

namespace trainer {
namespace {

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

void multiply_panels(const ProductTiles& tiles, const ProductPanels& x, const ProductPanels& y, int64_t words,
                     int64_t rows, int64_t columns, float* c, int64_t c_stride, float scale, bool add) {
  const int64_t step = divided_up(divided_up(words, divided_up(words, tiles.words)), 8) * 8;
  for (int64_t word = 0; word < words; word += step) {
    for (int64_t column = 0; column < columns; column += tiles.columns) {
      tiles.compute({.rows = rows,
                     .columns = std::min(tiles.columns, columns - column),
                     .words = std::min(step, words - word),
                     .x = x.data + word * x.word_stride,
                     .x_stride = x.stride,
                     .x_row = x.line_stride == 1 ? 0 : x.line_stride,
                     .y = y.data + column / tiles.columns * y.stride + word * y.word_stride,
                     .y_stride = y.word_stride,
                     .c = c + column,
                     .c_stride = c_stride,
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
  // Intel's bf16 dot products run at half the rate of fp32.
  static const ProductTiles* const found = __builtin_cpu_is("amd") ? tiles_of_avx512_bf16() : nullptr;
  return found;
#else
  return nullptr;
#endif
}

}  // namespace trainer
