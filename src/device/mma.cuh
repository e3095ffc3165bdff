// Products of bf16 tiles by tensor cores (compute capability 8.0 or newer), with sums in fp32: what a warp
// does together. tests/support/emulated_gpu.h has the three instructions for a CPU.
//
// In a 16 x 8 tile of sums, a thread has four: columns 2 (lane % 4) and the next, of rows lane / 4 and lane /
// 4
// + 8.
#pragma once
#include "device/prelude.cuh"

#ifdef __CUDACC__
// Four 8 x 8 matrices of bf16. Lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i, of 16 bytes
// each. A thread gets of each the elements 2 (lane % 4) and the next of row lane / 4.
DEVICE void ldmatrix_x4(unsigned (&out)[4], const void* row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
// The same of each matrix transposed.
DEVICE void ldmatrix_x4_trans(unsigned (&out)[4], const void* row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
// c [16 x 8] += a [16 x 16] times b [16 x 8].
DEVICE void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// Two numbers as bf16 in one register, the first in the low half.
DEVICE unsigned bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return narrow<bf16>(low).bits | static_cast<unsigned>(narrow<bf16>(high).bits) << 16;
#endif
}

// Rows of `cols` bf16 numbers in shared memory. Eight more of each, so that eight rows at one column lie in
// different banks.
template <int rows, int cols>
struct alignas(16) Tile {
  bf16 at[rows][cols + 8];
};

// Fills a tile with rows first .. of those at `from`, which are `stride` apart; what is not below `count`
// becomes 0. The block's threads do it together.
template <int rows, int cols>
DEVICE void fill_tile(Tile<rows, cols>& tile, const bf16* from, long long stride, int first, int count) {
  constexpr int kPieces = cols / 8;
  for (int i = threadIdx.x; i < rows * kPieces; i += blockDim.x) {
    const int row = i / kPieces, col = i % kPieces * 8;
    Pack<bf16, 8> piece = {};
    if (first + row < count) piece = load<8>(from + (first + row) * stride + col);
    store<8>(&tile.at[row][col], piece);
  }
}

// The inverse: writes them.
template <int rows, int cols>
DEVICE void write_tile(const Tile<rows, cols>& tile, bf16* to, long long stride, int first, int count) {
  constexpr int kPieces = cols / 8;
  for (int i = threadIdx.x; i < rows * kPieces; i += blockDim.x) {
    const int row = i / kPieces, col = i % kPieces * 8;
    if (first + row < count)
      store<8>(to + (first + row) * stride + col, load<8>(static_cast<const bf16*>(&tile.at[row][col])));
  }
}

// c += x[row .. row + 15] times the transposed y: 8 columns of c for each 8 rows of y.
template <int tiles, int x_rows, int y_rows, int cols>
DEVICE void add_products(float (&c)[tiles][4], const Tile<x_rows, cols>& x, int row,
                         const Tile<y_rows, cols>& y) {
  static_assert(tiles * 8 == y_rows && cols % 16 == 0, "a shape that the instructions do not take");
  const int lane = threadIdx.x % 32;
  UNROLL for (int k = 0; k < cols; k += 16) {
    unsigned a[4], b[4];
    ldmatrix_x4(a, &x.at[row + lane % 16][k + lane / 16 * 8]);
    UNROLL for (int n = 0; n < tiles; n += 2) {
      ldmatrix_x4(b, &y.at[n * 8 + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
      mma_m16n8k16(c[n], a, b[0], b[1]);
      mma_m16n8k16(c[n + 1], a, b[2], b[3]);
    }
  }
}

// sums [16 x cols] += w [16 x y_rows], rounded to bf16, times y.
template <int tiles, int sum_tiles, int y_rows, int cols>
DEVICE void add_weighted_rows(float (&sums)[sum_tiles][4], const float (&w)[tiles][4],
                              const Tile<y_rows, cols>& y) {
  static_assert(tiles * 8 == y_rows && sum_tiles * 8 == cols && tiles % 2 == 0,
                "a shape that the instructions do not take");
  const int lane = threadIdx.x % 32;
  UNROLL for (int k = 0; k < tiles; k += 2) {
    const unsigned a[4] = {bf16_pair(w[k][0], w[k][1]), bf16_pair(w[k][2], w[k][3]),
                           bf16_pair(w[k + 1][0], w[k + 1][1]), bf16_pair(w[k + 1][2], w[k + 1][3])};
    UNROLL for (int n = 0; n < sum_tiles; n += 2) {
      unsigned b[4];
      ldmatrix_x4_trans(b, &y.at[k * 8 + lane % 16][n * 8 + lane / 16 * 8]);
      mma_m16n8k16(sums[n], a, b[0], b[1]);
      mma_m16n8k16(sums[n + 1], a, b[2], b[3]);
    }
  }
}

// Rounds sums [16 x cols], times a factor for each of the thread's two rows, into rows of a tile.
template <int sum_tiles, int rows, int cols>
DEVICE void put_sums(Tile<rows, cols>& tile, int row, const float (&sums)[sum_tiles][4], float upper,
                     float lower) {
  const int lane = threadIdx.x % 32;
  UNROLL for (int n = 0; n < sum_tiles; n++) {
    UNROLL for (int half = 0; half < 2; half++) {
      const float factor = half == 0 ? upper : lower;
      bf16* to = &tile.at[row + lane / 4 + half * 8][n * 8 + lane % 4 * 2];
      to[0] = narrow<bf16>(sums[n][half * 2] * factor);
      to[1] = narrow<bf16>(sums[n][half * 2 + 1] * factor);
    }
  }
}

// The sum (or the like) over the four threads that share a row of a tile of sums, in each of them.
template <class Operation>
DEVICE float over_row_of_tile(float x) {
  x = Operation::of(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return Operation::of(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
