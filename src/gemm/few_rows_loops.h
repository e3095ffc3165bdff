// The innermost loops of gemm/few_rows.h, for each kind of processor: each number is the product of a row of
// x and a row of w, and has a sum of its own, in as many lanes as a vector has.
#pragma once

#include <cstdint>
#include <cstring>

#include <c10/util/BFloat16.h>

namespace trainer {

// sums [rows, outputs] = x w^T, for x [rows, depth] and w [outputs, depth], whose rows are contiguous.
// Strides are in elements, from one row to the next.
struct FewRows {
  const void* x;
  const void* w;
  float* sums;
  int64_t x_stride, w_stride, sums_stride;
  int64_t rows, outputs, depth;
};

// x is fp32; w is fp32, or bf16, which is widened. `bf16`: both are, and multiplied as pairs; null: there is
// no such instruction, or it is slower.
struct FewRowsLoops {
  void (*fp32)(const FewRows&);
  void (*widened)(const FewRows&);
  void (*bf16)(const FewRows&);
};

// Rows of w that are a multiple of every tile's, so that no tile is cut but at the end.
inline constexpr int64_t kFewRowsUnit = 24;

// Those of this processor; null if it has none.
const FewRowsLoops* few_rows_loops();
const FewRowsLoops* few_rows_loops_of_avx2();
const FewRowsLoops* few_rows_loops_of_avx512();

// What the files of the processors share. Everything is inlined into functions that are compiled for one.
namespace few_rows {

#define TRAINER_FEW_ROWS inline __attribute__((always_inline))

// Sums of products in the vectors of a kind of processor. `Vectors` has the type Floats, and kLanes of them;
// its load() widens bf16.
template <class Vectors, class W>
struct Widened {
  using X = float;
  using Weight = W;
  using Loaded = typename Vectors::Floats;
  static constexpr int kLanes = Vectors::kLanes, kStep = Vectors::kLanes;
  template <class T>
  static TRAINER_FEW_ROWS void load(const T* from, Loaded& to) {
    Vectors::load(from, to);
  }
  static TRAINER_FEW_ROWS void add(Loaded& sum, const Loaded& x, const Loaded& w) { sum += x * w; }
};

// Adds up the lanes of each of four vectors, first those that are half a vector apart.
typedef float FourFloats __attribute__((vector_size(16)));
template <class Floats>
TRAINER_FEW_ROWS void add_lanes(const Floats* sums, FourFloats& to) {
  FourFloats four[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    constexpr int parts = sizeof(Floats) / sizeof(FourFloats);
    FourFloats of_sum[parts];
    std::memcpy(of_sum, &sums[i], sizeof of_sum);
#pragma GCC unroll 4
    for (int half = parts / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
      for (int part = 0; part < half; part++) of_sum[part] += of_sum[part + half];
    }
    four[i] = of_sum[0];
  }
  const auto pairs = [](const FourFloats& a, const FourFloats& b) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  };
  const FourFloats first = pairs(four[0], four[1]), second = pairs(four[2], four[3]);
  to =
      __builtin_shufflevector(first, second, 0, 1, 4, 5) + __builtin_shufflevector(first, second, 2, 3, 6, 7);
}

// `outputs` rows of w with `rows` rows of x: as many sums as registers hold.
template <class Kind, int rows, int outputs>
TRAINER_FEW_ROWS void multiply_tile(const FewRows& in, const typename Kind::X* x,
                                    const typename Kind::Weight* w, float* to) {
  constexpr int count = rows * outputs, fours = (count + 3) / 4;
  typename Kind::Loaded sums[4 * fours];
#pragma GCC unroll 32
  for (int i = 0; i < 4 * fours; i++) sums[i] = typename Kind::Loaded{};
  int64_t at = 0;
  for (; at + Kind::kStep <= in.depth; at += Kind::kStep) {
    typename Kind::Loaded of_w[outputs];
#pragma GCC unroll 8
    for (int o = 0; o < outputs; o++) {
      Kind::load(w + o * in.w_stride + at, of_w[o]);
      // The next tile's, into the second cache: the first is full of x.
      __builtin_prefetch(w + (o + outputs) * in.w_stride + at, /*rw=*/0, /*locality=*/2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      typename Kind::Loaded of_x;
      Kind::load(x + r * in.x_stride + at, of_x);
#pragma GCC unroll 8
      for (int o = 0; o < outputs; o++) Kind::add(sums[o * rows + r], of_x, of_w[o]);
    }
  }
  float added[4 * fours];
#pragma GCC unroll 8
  for (int i = 0; i < fours; i++) {
    FourFloats four;
    add_lanes(&sums[4 * i], four);
    std::memcpy(added + 4 * i, &four, sizeof four);
  }
  for (int o = 0; o < outputs; o++) {
    for (int r = 0; r < rows; r++) {
      float sum = added[o * rows + r];
      for (int64_t i = at; i < in.depth; i++)
        sum += static_cast<float>(x[r * in.x_stride + i]) * static_cast<float>(w[o * in.w_stride + i]);
      to[r * in.sums_stride + o] = sum;
    }
  }
}

template <class Kind, int rows, int outputs>
TRAINER_FEW_ROWS void multiply_rows(const FewRows& in, int64_t row) {
  const auto* x = static_cast<const typename Kind::X*>(in.x) + row * in.x_stride;
  const auto* w = static_cast<const typename Kind::Weight*>(in.w);
  int64_t o = 0;
  for (; o + outputs <= in.outputs; o += outputs)
    multiply_tile<Kind, rows, outputs>(in, x, w + o * in.w_stride, in.sums + row * in.sums_stride + o);
  for (; o < in.outputs; o++)
    multiply_tile<Kind, rows, 1>(in, x, w + o * in.w_stride, in.sums + row * in.sums_stride + o);
}

}  // namespace few_rows
}  // namespace trainer
