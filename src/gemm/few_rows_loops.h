// The innermost loops of gemm/few_rows.h, for each kind of processor: each number is the product of a row of
// x and a row of w, and has a sum of its own, in as many lanes as a vector has.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

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
  // Puts the sums into `out`, whose rows are `stride` elements apart: scale x sums, or out + that if `begun`.
  void (*put_fp32)(const FewRows&, float* out, int64_t stride, float scale, bool begun);
  void (*put_bf16)(const FewRows&, c10::BFloat16* out, int64_t stride, float scale, bool begun);
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

// to = the elements of a and b that `number` says for each place, plus those two behind them; b's go on after
// a's.
template <class Vector, class Number, int... places>
TRAINER_FEW_ROWS void add_picked(const Vector& a, const Vector& b, Vector& to, Number number,
                                 std::integer_sequence<int, places...> /*all*/) {
  to = __builtin_shufflevector(a, b, number(std::integral_constant<int, places>())...) +
       __builtin_shufflevector(a, b, number(std::integral_constant<int, places>()) + 2 ...);
}

// Adds up the lanes of each of four vectors: elements 0 and 2, and 1 and 3, of each four lanes, then these
// two sums, and then those of fours that are ever closer.
typedef float FourFloats __attribute__((vector_size(16)));
template <class Floats>
TRAINER_FEW_ROWS void add_lanes(const Floats* sums, FourFloats& to) {
  constexpr int lanes = sizeof(Floats) / sizeof(float), parts = lanes / 4;
  constexpr auto all = std::make_integer_sequence<int, lanes>();
  // Of each four lanes: a0 b0 a1 b1, and a0 a1 b0 b1.
  constexpr auto in_turn = [](int place) { return place / 4 * 4 + place % 4 / 2 + place % 2 * lanes; };
  constexpr auto in_pairs = [](int place) { return place / 4 * 4 + place % 2 + place % 4 / 2 * lanes; };
  Floats ab, cd, abcd;
  add_picked(sums[0], sums[1], ab, in_turn, all);
  add_picked(sums[2], sums[3], cd, in_turn, all);
  add_picked(ab, cd, abcd, in_pairs, all);
  FourFloats of_fours[parts];
  std::memcpy(of_fours, &abcd, sizeof of_fours);
#pragma GCC unroll 4
  for (int half = parts / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (int part = 0; part < half; part++) of_fours[part] += of_fours[part + half];
  }
  to = of_fours[0];
}

// The products of the last elements, fewer than a vector has.
template <class Kind, int rows, int outputs>
void add_rest(const FewRows& in, int64_t at, const typename Kind::X* x, const typename Kind::Weight* w,
              float* to) {
  for (int r = 0; r < rows; r++) {
    for (int o = 0; o < outputs; o++) {
      float& sum = to[r * in.sums_stride + o];
      for (int64_t i = at; i < in.depth; i++)
        sum += static_cast<float>(x[r * in.x_stride + i]) * static_cast<float>(w[o * in.w_stride + i]);
    }
  }
}

// `outputs` rows of w with `rows` rows of x: as many sums as registers hold. `begins`: w comes from far away.
template <class Kind, int rows, int outputs, bool begins>
TRAINER_FEW_ROWS void multiply_tile(const FewRows& in, const typename Kind::X* x,
                                    const typename Kind::Weight* w, float* to) {
  constexpr int count = rows * outputs, fours = (count + 3) / 4;
  typename Kind::Loaded sums[4 * fours];  // by row
#pragma GCC unroll 32
  for (int i = 0; i < 4 * fours; i++) sums[i] = typename Kind::Loaded{};
  int64_t at = 0;
  for (; at + Kind::kStep <= in.depth; at += Kind::kStep) {
    typename Kind::Loaded of_w[outputs];
#pragma GCC unroll 8
    for (int o = 0; o < outputs; o++) {
      Kind::load(w + o * in.w_stride + at, of_w[o]);
      // The next tile's, into the second cache: the first is full of x.
      if (begins) __builtin_prefetch(w + (o + outputs) * in.w_stride + at, /*rw=*/0, /*locality=*/2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      typename Kind::Loaded of_x;
      Kind::load(x + r * in.x_stride + at, of_x);
#pragma GCC unroll 8
      for (int o = 0; o < outputs; o++) Kind::add(sums[r * outputs + o], of_x, of_w[o]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < fours; i++) {
    FourFloats four;
    add_lanes(&sums[4 * i], four);
    if constexpr (outputs % 4 == 0) {
      std::memcpy(to + 4 * i / outputs * in.sums_stride + 4 * i % outputs, &four, sizeof four);
    } else {
      for (int sum = 4 * i; sum < 4 * i + 4 && sum < count; sum++)
        to[sum / outputs * in.sums_stride + sum % outputs] = four[sum % 4];
    }
  }
  if (at < in.depth) add_rest<Kind, rows, outputs>(in, at, x, w, to);
}

// All outputs for x's rows from `row` on, `rows` after `rows` of them for each tile's rows of w, up to `end`.
template <class Kind, int rows, int outputs>
TRAINER_FEW_ROWS void multiply_rows(const FewRows& in, int64_t row, int64_t end) {
  const auto* x = static_cast<const typename Kind::X*>(in.x);
  const auto* w = static_cast<const typename Kind::Weight*>(in.w);
  int64_t o = 0;
  for (; o + outputs <= in.outputs; o += outputs) {
    const auto* const of_w = w + o * in.w_stride;
    multiply_tile<Kind, rows, outputs, true>(in, x + row * in.x_stride, of_w,
                                             in.sums + row * in.sums_stride + o);
    for (int64_t r = row + rows; r < end; r += rows)
      multiply_tile<Kind, rows, outputs, false>(in, x + r * in.x_stride, of_w,
                                                in.sums + r * in.sums_stride + o);
  }
  for (; o < in.outputs; o++)
    for (int64_t r = row; r < end; r += rows)
      multiply_tile<Kind, rows, 1, false>(in, x + r * in.x_stride, w + o * in.w_stride,
                                          in.sums + r * in.sums_stride + o);
}

// Tiles of 4 x `outputs` sums, and for the last rows smaller ones.
template <class Kind, int outputs, int outputs_of_two>
TRAINER_FEW_ROWS void multiply(const FewRows& in) {
  const int64_t fours = in.rows / 4 * 4, pairs = in.rows / 2 * 2;
  if (fours > 0) multiply_rows<Kind, 4, outputs>(in, 0, fours);
  if (pairs > fours) multiply_rows<Kind, 2, outputs_of_two>(in, fours, pairs);
  if (in.rows > pairs) multiply_rows<Kind, 1, 8>(in, pairs, in.rows);
}

// out = scale x sums, or out += that if `begun`, rounded once.
template <class T>
TRAINER_FEW_ROWS void put(const FewRows& in, T* out, int64_t stride, float scale, bool begun) {
  for (int64_t row = 0; row < in.rows; row++, out += stride) {
    const float* const sums = in.sums + row * in.sums_stride;
    if (begun) {
      for (int64_t i = 0; i < in.outputs; i++)
        out[i] = static_cast<T>(scale * sums[i] + static_cast<float>(out[i]));
    } else {
      for (int64_t i = 0; i < in.outputs; i++) out[i] = static_cast<T>(scale * sums[i]);
    }
  }
}

}  // namespace few_rows
}  // namespace trainer
