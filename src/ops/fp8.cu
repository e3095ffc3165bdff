// FP8 to numbers (src/ops/fp8.h). Open: Element, kWidth.
#include "ops/fp8.cuh"

// The scales of a matrix, row by row of its blocks.
struct Fp8Scales {
  const float* scales;
  long long columns, block_rows, block_columns, scales_a_row;
};

// A thread makes kWidth values, which are in one row of one block; count: number of such pieces.
KERNEL widen_fp8(const unsigned char* codes, Fp8Scales of, long long first_row, Element* out,
                 long long count) {
  const long long i = thread_index();
  if (i >= count) return;
  const long long at = i * kWidth, row = first_row + at / of.columns, column = at % of.columns;
  const float scale = of.scales[row / of.block_rows * of.scales_a_row + column / of.block_columns];
  const Pack<unsigned char, kWidth> from = load<kWidth>(codes + first_row * of.columns + at);
  Pack<Element, kWidth> to;
  UNROLL
  for (int k = 0; k < kWidth; k++) to.at[k] = narrow<Element>(fp8_value(from.at[k]) * scale);
  store<kWidth>(out + at, to);
}
