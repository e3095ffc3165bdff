// Numbers in FP8: widened, made of a product's factor, transposed (src/ops/fp8.h). Open: Element, kWidth.
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

template <int width>
DEVICE Pack<float, width> scaled(const Element* x, const float* by, int c) {
  const auto from = load<width>(x + c);
  Pack<float, width> values;
  UNROLL
  for (int k = 0; k < width; k++) values.at[k] = wide(from.at[k]) * (by == nullptr ? 1.0f : by[c + k]);
  return values;
}

// One block per row. x's rows are `stride` apart, those of codes are dense.
KERNEL quantise_fp8_rows(const Element* x, long long stride, const float* by, unsigned char* codes,
                         float* scales, int cols) {
  const Element* const row = x + blockIdx.x * stride;
  const int first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  float most = 0.0f;
  for (int c = first; c < cols; c += step) {
    const Pack<float, kWidth> values = scaled<kWidth>(row, by, c);
    UNROLL
    for (int k = 0; k < kWidth; k++) most = Most::of(fabsf(values.at[k]), most);
  }
  const float scale = Most::of(over_block<Most>(most), 1e-35f) / 448.0f;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  for (int c = first; c < cols; c += step) {
    const Pack<float, kWidth> values = scaled<kWidth>(row, by, c);
    Pack<unsigned char, kWidth> to;
    UNROLL
    for (int k = 0; k < kWidth; k++) to.at[k] = static_cast<unsigned char>(fp8_code(values.at[k] / scale));
    store<kWidth>(codes + static_cast<long long>(blockIdx.x) * cols + c, to);
  }
}

constexpr int kTile = 64, kWord = 4;

// codes [rows, cols] to out [cols, rows], whose rows are `stride` apart. A block has a tile, and 256 threads,
// which move words of four bytes. Rows and columns are multiples of four.
KERNEL transpose_codes(const unsigned char* codes, unsigned char* out, long long stride, int rows, int cols) {
  alignas(kWord) __shared__ unsigned char tile[kTile][kTile + kWord];
  constexpr int words = kTile / kWord;
  const int row = blockIdx.y * kTile, col = blockIdx.x * kTile;
  for (int i = threadIdx.x; i < kTile * words; i += blockDim.x) {
    const int r = i / words, c = i % words * kWord;
    if (row + r < rows && col + c < cols)
      store<kWord>(&tile[r][c], load<kWord>(codes + static_cast<long long>(row + r) * cols + col + c));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * words; i += blockDim.x) {
    const int c = i / words, r = i % words * kWord;
    if (row + r >= rows || col + c >= cols) continue;
    Pack<unsigned char, kWord> word;
    UNROLL
    for (int k = 0; k < kWord; k++) word.at[k] = tile[r + k][c];
    store<kWord>(out + static_cast<long long>(col + c) * stride + row + r, word);
  }
}
