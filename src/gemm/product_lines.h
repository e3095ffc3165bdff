// Packs x of bf16 products for tiles that read it in rows (gemm/product_tiles.h), with AVX-512.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace trainer {

// The words that a line of so many takes: whole cache lines.
constexpr int64_t line_of_words(int64_t words) { return (words + 15) / 16 * 16; }

// Packs `count` rows of `depth` columns (the places) into lines of pairs, one behind another, each of
// line_of_words((depth + 1) / 2) words; those behind its places are 0. `row_stride` is in elements.
void pack_rows_in_lines(const c10::BFloat16* from, int64_t row_stride, int64_t count, int64_t depth,
                        float* to);
// The same of the transposed matrix: packs `count` columns of `depth` rows.
void pack_columns_in_lines(const c10::BFloat16* from, int64_t row_stride, int64_t count, int64_t depth,
                           float* to);

}  // namespace trainer
