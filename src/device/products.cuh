// Products of matrices in shared memory, in bf16 by tensor cores (device/mma.cuh) or in fp32. A warp has 16
// rows of a result, and its threads have the sums that mma.cuh describes, whatever the type.
#pragma once
#include "device/mma.cuh"

// Rows of `cols` numbers and 16 bytes more, so that rows at one column lie in different banks.
template <class T, int rows, int cols>
struct alignas(16) Matrix {
  static constexpr int kRows = rows, kCols = cols;
  T at[rows][cols + 16 / sizeof(T)];
};

// Fills rows from those at `from`, which are `stride` apart and begin at multiples of 16 bytes; what is not
// below `count` becomes 0. The block's threads do it together.
template <class T, int rows, int cols>
DEVICE void fill_matrix(Matrix<T, rows, cols>& to, const T* from, long long stride, int count) {
  constexpr int kPiece = 16 / sizeof(T), kPieces = cols / kPiece;
  for (int i = threadIdx.x; i < rows * kPieces; i += blockDim.x) {
    const int row = i / kPieces, col = i % kPieces * kPiece;
    Pack<T, kPiece> piece = {};
    if (row < count) piece = load<kPiece>(from + row * stride + col);
    store<kPiece>(&to.at[row][col], piece);
  }
}

// The inverse: writes the rows below `count`.
template <class T, int rows, int cols>
DEVICE void write_matrix(const Matrix<T, rows, cols>& from, T* to, long long stride, int count) {
  constexpr int kPiece = 16 / sizeof(T), kPieces = cols / kPiece;
  for (int i = threadIdx.x; i < rows * kPieces; i += blockDim.x) {
    const int row = i / kPieces, col = i % kPieces * kPiece;
    if (row < count) store<kPiece>(to + row * stride + col, load<kPiece>(&from.at[row][col]));
  }
}

// The block's matrices that a product reads: as they lie, or transposed.
template <bool transposed, class T, int rows, int cols>
struct Factor {
  const Matrix<T, rows, cols>& of;
  DEVICE T get(int row, int col) const { return transposed ? of.at[col][row] : of.at[row][col]; }
};
template <class T, int rows, int cols>
DEVICE Factor<false, T, rows, cols> plain(const Matrix<T, rows, cols>& of) {
  return {of};
}
template <class T, int rows, int cols>
DEVICE Factor<true, T, rows, cols> transposed(const Matrix<T, rows, cols>& of) {
  return {of};
}

// Rows row .. row + 15 and columns k .. k + 15 of a left factor.
template <int rows, int cols>
DEVICE void load_left(unsigned (&a)[4], const Factor<false, bf16, rows, cols>& x, int row, int k) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(a, &x.of.at[row + lane % 16][k + lane / 16 * 8]);
}
template <int rows, int cols>
DEVICE void load_left(unsigned (&a)[4], const Factor<true, bf16, rows, cols>& x, int row, int k) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4_trans(a, &x.of.at[k + lane / 16 * 8 + lane % 8][row + lane / 8 % 2 * 8]);
}
// Rows k .. k + 15 and columns col .. col + 15 of a right factor.
template <int rows, int cols>
DEVICE void load_right(unsigned (&b)[4], const Factor<false, bf16, rows, cols>& y, int k, int col) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4_trans(b, &y.of.at[k + lane % 16][col + lane / 16 * 8]);
}
template <int rows, int cols>
DEVICE void load_right(unsigned (&b)[4], const Factor<true, bf16, rows, cols>& y, int k, int col) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(b, &y.of.at[col + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
}

// sums += x[row .. row + 15][from .. to - 1] y[from .. to - 1][col .. col + 8 tiles - 1]; from and to are
// multiples of 16.
template <int tiles, bool x_transposed, bool y_transposed, int x_rows, int x_cols, int y_rows, int y_cols>
DEVICE void add_product(float (&sums)[tiles][4], const Factor<x_transposed, bf16, x_rows, x_cols>& x, int row,
                        const Factor<y_transposed, bf16, y_rows, y_cols>& y, int col, int from, int to) {
  static_assert(tiles % 2 == 0, "an instruction loads two tiles");
  UNROLL_TWO for (int k = from; k < to; k += 16) {
    unsigned a[4], b[4];
    load_left(a, x, row, k);
    UNROLL for (int n = 0; n < tiles; n += 2) {
      load_right(b, y, k, col + n * 8);
      mma_m16n8k16(sums[n], a, b[0], b[1]);
      mma_m16n8k16(sums[n + 1], a, b[2], b[3]);
    }
  }
}
template <int tiles, bool x_transposed, bool y_transposed, int x_rows, int x_cols, int y_rows, int y_cols>
DEVICE void add_product(float (&sums)[tiles][4], const Factor<x_transposed, float, x_rows, x_cols>& x,
                        int row, const Factor<y_transposed, float, y_rows, y_cols>& y, int col, int from,
                        int to) {
  const int lane = threadIdx.x % 32, upper = row + lane / 4, first = col + lane % 4 * 2;
  for (int k = from; k < to; k++) {
    const float a = x.get(upper, k), b = x.get(upper + 8, k);
    UNROLL for (int n = 0; n < tiles; n++) {
      const float left = y.get(k, first + n * 8), right = y.get(k, first + n * 8 + 1);
      sums[n][0] += a * left;
      sums[n][1] += a * right;
      sums[n][2] += b * left;
      sums[n][3] += b * right;
    }
  }
}

// Calls body(sum, row, column) for each of the thread's sums, which lie from `row` and `col` on.
template <int tiles, class Body>
DEVICE void each_sum(float (&sums)[tiles][4], int row, int col, const Body& body) {
  const int lane = threadIdx.x % 32;
  UNROLL for (int n = 0; n < tiles; n++) {
    UNROLL for (int i = 0; i < 4; i++)
        body(sums[n][i], row + lane / 4 + i / 2 * 8, col + n * 8 + lane % 4 * 2 + i % 2);
  }
}

// Reads a warp's sums from rows of a matrix in memory, `stride` apart: `from` is where row 0 and column 0 of
// the block's sums lie. Rows from `count` on are 0.
template <class T, int tiles>
DEVICE void load_sums(float (&sums)[tiles][4], const T* from, long long stride, int row, int col, int count) {
  const int lane = threadIdx.x % 32;
  UNROLL for (int half = 0; half < 2; half++) {
    const int i = row + lane / 4 + half * 8;
    UNROLL for (int n = 0; n < tiles; n++) {
      Pack<T, 2> pair = {};
      if (i < count) pair = load<2>(from + i * stride + col + n * 8 + lane % 4 * 2);
      sums[n][half * 2] = wide(pair.at[0]);
      sums[n][half * 2 + 1] = wide(pair.at[1]);
    }
  }
}

// The inverse: writes the rows below `count`.
template <class T, int tiles>
DEVICE void store_sums(const float (&sums)[tiles][4], T* to, long long stride, int row, int col, int count) {
  const int lane = threadIdx.x % 32;
  UNROLL for (int half = 0; half < 2; half++) {
    const int i = row + lane / 4 + half * 8;
    UNROLL for (int n = 0; n < tiles; n++) {
      const Pack<T, 2> pair = {narrow<T>(sums[n][half * 2]), narrow<T>(sums[n][half * 2 + 1])};
      if (i < count) store<2>(to + i * stride + col + n * 8 + lane % 4 * 2, pair);
    }
  }
}

// A matrix on its way from memory to shared memory, in the registers of `threads` threads: it is fetched
// while the block still computes with the one before. What is too large for them is read when it is put.
template <class T, int rows, int cols, int threads,
          bool in_registers = (rows * cols * sizeof(T) <= 128 * threads)>
struct Fetched {
  static constexpr int kPiece = 16 / sizeof(T), kPieces = cols / kPiece, kCount = rows * kPieces / threads;
  static_assert(rows * kPieces % threads == 0, "threads with unequal shares");

  // As fill_matrix().
  DEVICE void fetch(const T* from, long long stride, int count) {
    UNROLL for (int n = 0; n < kCount; n++) {
      const int i = n * threads + static_cast<int>(threadIdx.x), row = i / kPieces,
                col = i % kPieces * kPiece;
      of[n] = {};
      if (row < count) of[n] = load<kPiece>(from + row * stride + col);
    }
  }
  DEVICE void put(Matrix<T, rows, cols>& to) const {
    UNROLL for (int n = 0; n < kCount; n++) {
      const int i = n * threads + static_cast<int>(threadIdx.x);
      store<kPiece>(&to.at[i / kPieces][i % kPieces * kPiece], of[n]);
    }
  }

  Pack<T, kPiece> of[kCount];
};
template <class T, int rows, int cols, int threads>
struct Fetched<T, rows, cols, threads, false> {
  DEVICE void fetch(const T* from_, long long stride_, int count_) {
    from = from_;
    stride = stride_;
    count = count_;
  }
  DEVICE void put(Matrix<T, rows, cols>& to) const { fill_matrix(to, from, stride, count); }

  const T* from;
  long long stride;
  int count;
};
