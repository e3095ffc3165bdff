#include <algorithm>
#include <cstring>

#include "gemm/product_tiles.h"
#include "gemm/product_vectors.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trainer {

#if defined(__x86_64__)

#define TRAINER_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl")))
#define TRAINER_AMX_INLINE TRAINER_AMX inline __attribute__((always_inline))

namespace {

// A register of AMX holds 16 rows of 16 words. Four of the eight are 32 x 32 sums, two are rows of x and two
// columns of y (Intel, Architecture Instruction Set Extensions Programming Reference, chapter 3).
constexpr int kSide = 16, kMostSide = 2 * kSide;
constexpr int kFirstX = 4, kFirstY = 6;

// The operand of `ldtilecfg`.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // bytes of a row
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

// The shapes for so many rows of x, up to 32, and words that are multiplied at once, up to 16.
TileShapes shapes_for(int64_t rows, int64_t words) {
  TileShapes shapes;
  const auto upper = static_cast<uint8_t>(std::min<int64_t>(rows, kSide)),
             lower = static_cast<uint8_t>(std::max<int64_t>(rows - kSide, 1));  // or it is not used
  for (int i = 0; i < kFirstX; i++) {
    shapes.rows[i] = i < 2 ? upper : lower;
    shapes.bytes[i] = 4 * kSide;
  }
  for (int i = 0; i < 2; i++) {
    shapes.rows[kFirstX + i] = i == 0 ? upper : lower;
    shapes.bytes[kFirstX + i] = static_cast<uint16_t>(4 * words);
    shapes.rows[kFirstY + i] = static_cast<uint8_t>(words);
    shapes.bytes[kFirstY + i] = 4 * kSide;
  }
  return shapes;
}

// The order in which the words of a line are multiplied: `steps` times `words` at once, and then `rest`,
// which are followed by zeros.
struct Steps {
  int64_t words, steps, rest;

  explicit Steps(int64_t all) {
    const int64_t least = (all + kSide - 1) / kSide;
    words = all % least == 0 ? all / least : kSide;
    steps = all / words;
    rest = all % words;
  }
};

// The rows of x go past the first-level cache, where the columns of y stay.
template <int x_tiles>
TRAINER_AMX_INLINE void load_x(const float* x, int64_t row) {
  _tile_stream_loadd(4, x, 4 * row);
  if constexpr (x_tiles == 2) _tile_stream_loadd(5, x + kSide * row, 4 * row);
}

template <int y_tiles>
TRAINER_AMX_INLINE void load_y(const float* y, int64_t stride) {
  _tile_loadd(6, y, 4 * stride);
  if constexpr (y_tiles == 2) _tile_loadd(7, y + kSide, 4 * stride);
}

template <int x_tiles, int y_tiles>
TRAINER_AMX_INLINE void add_products() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (x_tiles == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (y_tiles == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (x_tiles == 2 && y_tiles == 2) _tile_dpbf16ps(3, 5, 7);
}

// Adds the products of `steps` steps to the sums in the registers.
template <int x_tiles, int y_tiles>
TRAINER_AMX_INLINE void add_steps(const float* x, int64_t x_row, const float* y, int64_t y_stride,
                                  int64_t words, int64_t steps) {
  for (int64_t step = 0; step < steps; step++, x += words, y += words * y_stride) {
    load_y<y_tiles>(y, y_stride);
    load_x<x_tiles>(x, x_row);
    add_products<x_tiles, y_tiles>();
  }
}

struct alignas(64) Sums {
  float at[kMostSide][kMostSide];
};

// The last words of some lines, followed by zeros.
struct alignas(64) LastWords {
  float of_x[kMostSide][kSide], of_y[kSide][kMostSide];
};

// GCC does not know that the instructions for tiles read memory.
inline void write_before_tiles_read() { asm volatile("" ::: "memory"); }

template <int x_tiles, int y_tiles>
TRAINER_AMX void compute_sums(const float* x, int64_t x_row, const TileColumn& column, const Steps& steps,
                              const LastWords& last, Sums& sums) {
  write_before_tiles_read();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  add_steps<x_tiles, y_tiles>(x, x_row, column.y, column.y_stride, steps.words, steps.steps);
  if (steps.rest > 0) add_steps<x_tiles, y_tiles>(last.of_x[0], kSide, last.of_y[0], kMostSide, kSide, 1);
  constexpr int row = sizeof(sums.at[0]);
  _tile_stored(0, &sums.at[0][0], row);
  if constexpr (y_tiles == 2) _tile_stored(1, &sums.at[0][kSide], row);
  if constexpr (x_tiles == 2) _tile_stored(2, &sums.at[kSide][0], row);
  if constexpr (x_tiles == 2 && y_tiles == 2) _tile_stored(3, &sums.at[kSide][kSide], row);
}

// c and rounded are the column's, from the first row of the sums on.
TRAINER_AVX512 void put_sums(const TileColumn& column, const Sums& sums, int64_t rows, float* c,
                             c10::BFloat16* rounded) {
  const bool whole = column.columns == kMostSide;
  for (int64_t row = 0; row < rows; row++, c += column.c_stride) {
    const float* const from = sums.at[row];
    if (rounded && whole) {
      store_rounded(rounded, sum_of(column, _mm512_load_ps(from), c, 0xFFFF),
                    sum_of(column, _mm512_load_ps(from + kVector), c + kVector, 0xFFFF));
    } else {
      for (int64_t at = 0; at < column.columns; at += kVector) {
        const __mmask16 mask = first_lanes(column.columns - at);
        const __m512 sum = sum_of(column, _mm512_load_ps(from + at), c + at, mask);
        if (rounded) {
          store_rounded(rounded + at, mask, sum);
        } else {
          _mm512_mask_storeu_ps(c + at, mask, sum);
        }
      }
    }
    if (rounded) rounded += column.rounded_stride;
  }
}

TRAINER_AMX void compute_column_of_32x32(const TileColumn& column) {
  const Steps steps(column.words);
  const int64_t done = steps.words * steps.steps;
  LastWords last;
  if (steps.rest > 0) {
    std::memset(&last, 0, sizeof(last));
    std::memcpy(last.of_y, column.y + done * column.y_stride, sizeof(last.of_y[0]) * steps.rest);
  }
  const float* x = column.x;
  float* c = column.c;
  c10::BFloat16* rounded = column.rounded;
  int64_t shaped = 0;
  for (int64_t row = 0; row < column.rows; row += kMostSide) {
    const int64_t rows = std::min<int64_t>(kMostSide, column.rows - row);
    if (rows != shaped) {
      const TileShapes shapes = shapes_for(rows, steps.words);
      write_before_tiles_read();
      _tile_loadconfig(&shapes);
      shaped = rows;
    }
    for (int64_t i = 0; i < rows && steps.rest > 0; i++)
      std::memcpy(last.of_x[i], x + i * column.x_row + done, sizeof(float) * steps.rest);
    Sums sums;
    const bool wide = column.columns > kSide;
    const auto compute = rows > kSide ? (wide ? compute_sums<2, 2> : compute_sums<2, 1>)
                                      : (wide ? compute_sums<1, 2> : compute_sums<1, 1>);
    compute(x, column.x_row, column, steps, last, sums);
    put_sums(column, sums, rows, c, rounded);
    x += column.x_stride;
    c += kMostSide * column.c_stride;
    if (rounded) rounded += kMostSide * column.rounded_stride;
  }
  _tile_release();
}

// Asks the system for the registers' 8 KB in this process.
bool may_use_amx() {
  constexpr long ask = 0x1023, tiles = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool may = __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-tile") &&
                          syscall(SYS_arch_prctl, ask, tiles) == 0;
  return may;
}

}  // namespace

const ProductTiles* tiles_of_amx_bf16() {
  static const ProductTiles tiles = [] {
    ProductTiles of{.rows = kMostSide,
                    .columns = kMostSide,
                    .bf16 = true,
                    .reads_plain = true,
                    .x_in_rows = true,
                    .long_blocks = true,
                    .words = 1024,
                    .unit = kSide,
                    .compute = compute_column_of_32x32};
    if (tiles_of_avx512_bf16()) of.round = tiles_of_avx512_bf16()->round;
    return of;
  }();
  return tiles.round && may_use_amx() ? &tiles : nullptr;
}

#else

const ProductTiles* tiles_of_amx_bf16() { return nullptr; }

#endif

}  // namespace trainer
