// The innermost part of gemm/product_round.h: tiles of a sum, computed in registers, for each kind of x86
// processor; and what is known about such a tile.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace trainer {

// Packed operands (gemm/product_packing.h) consist of words: an fp32 number, or two bf16 numbers of places
// next to each other. A panel is [words, lines]: the lines are the rows of x of a row of tiles, or the
// columns of y of a column of tiles. For tiles that read x in rows, x is [lines, words] instead, packed or
// not.
//
// A column of tiles is c = scale x y, or c += scale x y, for c [rows, columns] with any number of rows and at
// most as many columns as a tile has. What would be in c goes to `rounded` instead, if that is not null.
struct TileColumn {
  int64_t rows, columns, words;
  const float* x;    // panels
  int64_t x_stride;  // from one to the next
  int64_t x_row;     // 0, or x is in rows: from one to the next, whose words lie behind each other
  const float* y;    // a panel
  int64_t y_stride;  // from one word to the next
  float* c;
  int64_t c_stride;
  c10::BFloat16* rounded;  // for words that are pairs
  int64_t rounded_stride;
  float scale;
  bool add;
};

struct ProductTiles {
  int64_t rows, columns;     // size of a tile
  bool bf16;                 // whether words are pairs
  bool reads_plain;          // whether x, and y in fp32, need not be packed
  bool x_in_rows = false;    // how x is packed
  bool long_blocks = false;  // whether they are so fast that y should be read seldom
  int64_t words;             // the most that are multiplied before c is read and written
  int64_t unit = 8;          // blocks of words are multiples of it
  void (*compute)(const TileColumn&);
  // For bf16: rounds `rows` rows of `columns` numbers.
  void (*round)(const float* from, int64_t from_stride, int64_t rows, int64_t columns, c10::BFloat16* to,
                int64_t to_stride) = nullptr;
};

// An operand as tiles read it: panels of words.
struct ProductPanels {
  const float* data;
  int64_t stride;       // from one panel to the next
  int64_t word_stride;  // of a line
  int64_t line_stride;  // of a word; 1: packed
};

// A packed x whose lines take `line` words each.
inline ProductPanels panels_of_x(const ProductTiles& tiles, const float* x, int64_t line) {
  return tiles.x_in_rows ? ProductPanels{x, tiles.rows * line, 1, line}
                         : ProductPanels{x, tiles.rows * line, tiles.rows, 1};
}

// The destination of a product of any size: c, or, if set, `rounded`, where c [rows, columns] holds the sum
// so far.
struct ProductPlace {
  int64_t rows, columns;
  float* c;
  int64_t c_stride;
  c10::BFloat16* rounded = nullptr;
  int64_t rounded_stride = 0;
};

// c = scale x y, or c += scale x y, over the first `words` of each line.
void multiply_panels(const ProductTiles& tiles, const ProductPanels& x, const ProductPanels& y, int64_t words,
                     const ProductPlace& place, float scale, bool add);

// Returns the tiles for fp32 products on this processor, and those for products of bf16 with sums in fp32;
// null where there are none, or where they are slower than bf16 widened to fp32.
const ProductTiles* fp32_tiles();
const ProductTiles* bf16_tiles();

// The kinds there are; null unless the processor has AVX2, AVX-512, AVX-512 for bf16, or AMX for bf16, which
// the system must allow, too.
const ProductTiles* tiles_of_avx2();
const ProductTiles* tiles_of_avx512();
const ProductTiles* tiles_of_avx512_bf16();
const ProductTiles* tiles_of_amx_bf16();

}  // namespace trainer
