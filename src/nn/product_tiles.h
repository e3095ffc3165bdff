// The innermost parts of nn/product_round.h: a tile of a sum in registers, and the packing of operands.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace trainer {

// A tile has this many rows and columns: 6 x 16 sums are 12 registers of AVX2, which leaves 4 for operands.
constexpr int64_t kTileRows = 6, kTileColumns = 16;

// Returns whether the processor has AVX2 and FMA, which the functions below need.
bool has_product_tiles();

// A panel is one operand's part of a row of tiles: `width` lines (kTileRows rows of x, or kTileColumns
// columns of y) with a number for each of `depth` places along the dimension that is summed over. Packed, it
// is [depth, width] in fp32.

// c = a b, or c += a b, for as many tiles c [kTileRows, kTileColumns] below each other, in rows of
// `c_stride`, and the packed panels a [depth, kTileRows], `a_stride` apart, and b [depth, kTileColumns]. b is
// aligned to 32 bytes.
void add_tiles(int64_t tiles, int64_t depth, const float* a, int64_t a_stride, const float* b, float* c,
               int64_t c_stride, bool add);

// Packs `count` columns of `depth` rows, times `scale`, into as many panels of `width` as these take, one
// after another. What is left of the last panel becomes 0.
template <class T>
void pack_columns(const T* from, int64_t row_stride, int64_t count, int64_t depth, int64_t width, float scale,
                  float* to);
// The same of the transposed matrix: packs `count` rows of `depth` columns.
template <class T>
void pack_rows(const T* from, int64_t row_stride, int64_t count, int64_t depth, int64_t width, float scale,
               float* to);

}  // namespace trainer
