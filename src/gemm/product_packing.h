// Packs operands of products for gemm/product_tiles.h, with AVX2, which all its kinds have.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace trainer {

enum class PackedWords {
  fp32,     // an fp32 matrix
  widened,  // fp32 of a bf16 matrix
  pairs     // two bf16 numbers of places next to each other; behind an odd number of places, 0
};

// Packs `count` columns of `depth` rows (the places) into as many panels of `width` lines as these take, one
// after another. What is left of the last panel becomes 0. `from` is a matrix of the type that `words` says,
// `row_stride` in its elements; width is 6 or 16, or 12 or 32.
void pack_columns(PackedWords words, const void* from, int64_t row_stride, int64_t count, int64_t depth,
                  int64_t width, float* to);
// The same of the transposed matrix: packs `count` rows of `depth` columns.
void pack_rows(PackedWords words, const void* from, int64_t row_stride, int64_t count, int64_t depth,
               int64_t width, float* to);

// Converts `rows` rows of `columns` numbers.
void widen_rows(const c10::BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                int64_t to_stride);

}  // namespace trainer
