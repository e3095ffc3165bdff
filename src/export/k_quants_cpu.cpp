// Quantises to Q4_K, Q6_K and Q5_0. Every block's sums are made in ggml's order, and eight blocks at once:
// one in each lane of a vector.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/vector_math.h"
#include "export/k_quants.h"
#include "formats/gguf_blocks.h"

namespace trainer {
namespace {

// AVX2 without FMA: a product that is not rounded before it is added would be another sum than ggml's.
#define TRAINER_NO_FMA __attribute__((target_clones("avx2", "default")))

constexpr int kLanes = 8;
constexpr int64_t kSuper = gguf_block(GgufType::q4_k).values;
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));

constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23: adding it leaves no bits for a fraction

// Rounds halves to even.
TRAINER_INLINE int32_t nearest(float x) {
  return (std::bit_cast<int32_t>(x + kRoundToInteger) & 0x007fffff) - 0x00400000;
}
TRAINER_INLINE void round_to(const Floats& x, int32_t least, int32_t most, Ints& out) {
  const Ints all = (__builtin_bit_cast(Ints, x + kRoundToInteger) & 0x007fffff) - 0x00400000;
  const Ints above = all > least ? all : Ints{} + least;
  out = above < most ? above : Ints{} + most;
}
TRAINER_INLINE void magnitude(const Floats& x, Floats& out) {
  out = __builtin_bit_cast(Floats, __builtin_bit_cast(Ints, x) & 0x7fffffff);
}
// A macro, as a function that returns a vector of AVX has another ABI without it; so are the casts of bits.
#define TRAINER_AS_FLOATS(x) __builtin_convertvector(x, Floats)

// Eight blocks of `kLength` values that lie one after another, block by lane.
template <int kLength>
TRAINER_INLINE void load(const float* values, Floats (&x)[kLength]) {
  for (int i = 0; i < kLength; i++)
    for (int lane = 0; lane < kLanes; lane++) x[i][lane] = values[kLength * lane + i];
}

// The fit of each block: a value is about scale * code + least.
struct FitWithLeast {
  Floats scale, least;
  Ints codes[32];
};

// Weighted sums of one try.
struct Try {
  Floats scale, least, error;
  Ints valid;
  Ints codes[32];
};

TRAINER_INLINE void try_scale(const Floats (&x)[32], const Floats (&weight)[32], const Floats& sum_w,
                              const Floats& sum_x, const Floats& inverse, const Floats& least, Try& out) {
  Floats sum_l{}, sum_l2{}, sum_xl{};
  for (int i = 0; i < 32; i++) {
    round_to(inverse * (x[i] - least), 0, 15, out.codes[i]);
    const Floats l = TRAINER_AS_FLOATS(out.codes[i]), wl = weight[i] * l;
    sum_l += wl;
    sum_l2 += wl * l;
    sum_xl += wl * x[i];
  }
  const Floats d = sum_w * sum_l2 - sum_l * sum_l;
  const Floats scale = (sum_w * sum_xl - sum_x * sum_l) / d;
  const Floats offset = (sum_l2 * sum_x - sum_l * sum_xl) / d;
  const Ints positive = offset > 0.0f;
  out.valid = d > 0.0f;
  out.scale = positive ? sum_xl / sum_l2 : scale;
  out.least = positive ? Floats{} : offset;
  out.error = Floats{};
  for (int i = 0; i < 32; i++) {
    const Floats off = out.scale * TRAINER_AS_FLOATS(out.codes[i]) + out.least - x[i];
    out.error += weight[i] * (off * off);
  }
}

TRAINER_INLINE void fit_with_least(const Floats (&x)[32], FitWithLeast& out) {
  Floats squares{}, mean, weight[32];
  for (int i = 0; i < 32; i++) squares += x[i] * x[i];
  for (int lane = 0; lane < kLanes; lane++) mean[lane] = std::sqrt(squares[lane] / 32.0f);
  for (int i = 0; i < 32; i++) {
    magnitude(x[i], weight[i]);
    weight[i] = mean + weight[i];
  }
  Floats least = x[0], most = x[0], sum_w = weight[0], sum_x = weight[0] * x[0];
  for (int i = 1; i < 32; i++) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
    sum_w += weight[i];
    sum_x += weight[i] * x[i];
  }
  least = least > 0.0f ? Floats{} : least;
  const Ints flat = most == least;
  const Floats least_of_flat = least;
  Floats inverse = 15.0f / (most - least);
  Floats scale = 1.0f / inverse, error{};
  for (int i = 0; i < 32; i++) {
    round_to(inverse * (x[i] - least), 0, 15, out.codes[i]);
    const Floats off = scale * TRAINER_AS_FLOATS(out.codes[i]) + least - x[i];
    error += weight[i] * (off * off);
  }
  for (int step = 0; step <= 20; step++) {
    Try next;
    inverse = (-1.0f + 0.1f * static_cast<float>(step) + 15.0f) / (most - least);
    try_scale(x, weight, sum_w, sum_x, inverse, least, next);
    const Ints better = next.valid & (next.error < error);
    for (int i = 0; i < 32; i++) out.codes[i] = better ? next.codes[i] : out.codes[i];
    error = better ? next.error : error;
    scale = better ? next.scale : scale;
    least = better ? next.least : least;
  }
  for (int i = 0; i < 32; i++) out.codes[i] = flat ? Ints{} : out.codes[i];
  out.scale = flat ? Floats{} : scale;
  out.least = flat ? least_of_flat : least;
}

// Eight pairs of 6 bits in 12 bytes, scales and minima.
struct SixBits {
  std::array<uint8_t, kLanes> scale, least;
};

void pack(const SixBits& in, uint8_t* bytes) {
  for (size_t i = 0; i < 4; i++) {
    bytes[i] = static_cast<uint8_t>(in.scale[i] | (in.scale[i + 4] >> 4) << 6);
    bytes[i + 4] = static_cast<uint8_t>(in.least[i] | (in.least[i + 4] >> 4) << 6);
    bytes[i + 8] = static_cast<uint8_t>((in.scale[i + 4] & 15) | (in.least[i + 4] & 15) << 4);
  }
}

SixBits unpack(const uint8_t* bytes) {
  SixBits out;
  for (size_t i = 0; i < 4; i++) {
    out.scale[i] = bytes[i] & 63;
    out.least[i] = bytes[i + 4] & 63;
    out.scale[i + 4] = static_cast<uint8_t>((bytes[i + 8] & 15) | (bytes[i] >> 6) << 4);
    out.least[i + 4] = static_cast<uint8_t>(bytes[i + 8] >> 4 | (bytes[i + 4] >> 6) << 4);
  }
  return out;
}

void put_half(float value, uint8_t* to) {
  const uint16_t half = to_half(value);
  std::memcpy(to, &half, sizeof half);
}

float get_half(const uint8_t* from) {
  uint16_t half = 0;
  std::memcpy(&half, from, sizeof half);
  return from_half(half);
}

// The parts of a block of Q4_K and of Q6_K.
constexpr int64_t kQ4Scales = 4, kQ4Codes = 16, kQ6High = 128, kQ6Scales = 192, kQ6Scale = 208;

TRAINER_NO_FMA void quantise_super_q4(const float* values, uint8_t* block) {
  Floats x[32];
  load(values, x);
  FitWithLeast fit;
  fit_with_least(x, fit);
  float most_scale = 0, most_least = 0;
  for (int lane = 0; lane < kLanes; lane++) {
    most_scale = std::max(most_scale, fit.scale[lane]);
    most_least = std::max(most_least, -fit.least[lane]);
  }
  const float to_scale = most_scale > 0 ? 63.0f / most_scale : 0.0f,
              to_least = most_least > 0 ? 63.0f / most_least : 0.0f;
  SixBits six;
  for (int lane = 0; lane < kLanes; lane++) {
    const auto i = static_cast<size_t>(lane);
    six.scale[i] = std::min<uint8_t>(63, static_cast<uint8_t>(nearest(to_scale * fit.scale[lane])));
    six.least[i] = std::min<uint8_t>(63, static_cast<uint8_t>(nearest(to_least * -fit.least[lane])));
  }
  put_half(most_scale / 63.0f, block);
  put_half(most_least / 63.0f, block + 2);
  pack(six, block + kQ4Scales);
  // The codes that fit the scales as they are stored.
  Floats d, least;
  for (int lane = 0; lane < kLanes; lane++) {
    d[lane] = get_half(block) * static_cast<float>(six.scale[static_cast<size_t>(lane)]);
    least[lane] = get_half(block + 2) * static_cast<float>(six.least[static_cast<size_t>(lane)]);
  }
  for (int i = 0; i < 32; i++) {
    Ints code;
    round_to((x[i] + least) / d, 0, 15, code);
    code = d == 0.0f ? fit.codes[i] : code;
    for (int pair = 0; pair < kLanes / 2; pair++)
      block[kQ4Codes + 32 * pair + i] = static_cast<uint8_t>(code[2 * pair] | code[2 * pair + 1] << 4);
  }
}

// The best scale of eight blocks of 16; a value is about scale * (code - 32).
TRAINER_INLINE void fit_scale(const Floats (&x)[16], Floats& scale, Ints (&codes)[16]) {
  Floats largest{}, most{};
  for (int i = 0; i < 16; i++) {
    Floats size;
    magnitude(x[i], size);
    most = size > largest ? x[i] : most;
    largest = size > largest ? size : largest;
  }
  const Ints empty = largest < 1e-15f;
  Floats best{};
  scale = Floats{};
  for (int turn = -10; turn <= 9; turn++) {  // the first is the usual scale
    if (turn == 0) continue;
    const float change = turn == -10 ? 0.0f : 0.1f * static_cast<float>(turn);
    const Floats inverse = -(32.0f + change) / most;
    Floats sum_xl{}, sum_l2{};
    Ints next[16];
    for (int i = 0; i < 16; i++) {
      round_to(inverse * x[i], -32, 31, next[i]);
      const Floats l = TRAINER_AS_FLOATS(next[i]), weight = x[i] * x[i];
      sum_xl += weight * x[i] * l;
      sum_l2 += weight * l * l;
    }
    const Ints better = turn == -10 ? ~Ints{} : (sum_l2 > 0.0f) & (sum_xl * sum_xl > best * sum_l2);
    const Floats own = sum_l2 != 0.0f ? sum_xl / sum_l2 : Floats{};
    for (int i = 0; i < 16; i++) codes[i] = better ? next[i] + 32 : codes[i];
    scale = better ? own : scale;
    best = better ? own * sum_xl : best;
  }
  scale = empty ? Floats{} : scale;
  for (int i = 0; i < 16; i++) codes[i] = empty ? Ints{} : codes[i];
}

TRAINER_NO_FMA void quantise_super_q6(const float* values, uint8_t* block) {
  Floats scale[2], d[2];
  Ints codes[2][16];
  float largest = 0, most = 0;
  for (int half = 0; half < 2; half++) {
    Floats x[16];
    load(values + half * kSuper / 2, x);
    fit_scale(x, scale[half], codes[half]);
    for (int lane = 0; lane < kLanes; lane++) {
      if (std::fabs(scale[half][lane]) <= largest) continue;
      largest = std::fabs(scale[half][lane]);
      most = scale[half][lane];
    }
  }
  std::memset(block, 0, static_cast<size_t>(gguf_block(GgufType::q6_k).bytes));
  if (largest < 1e-15f) return;
  const float inverse = -128.0f / most;
  put_half(1.0f / inverse, block + kQ6Scale);
  for (int half = 0; half < 2; half++) {
    for (int lane = 0; lane < kLanes; lane++) {
      const auto code = static_cast<int8_t>(std::min(127, nearest(inverse * scale[half][lane])));
      block[kQ6Scales + half * kLanes + lane] = static_cast<uint8_t>(code);
      d[half][lane] = get_half(block + kQ6Scale) * static_cast<float>(code);
    }
    Floats x[16];
    load(values + half * kSuper / 2, x);
    for (int i = 0; i < 16; i++) {
      Ints code;
      round_to(x[i] / d[half], -32, 31, code);
      codes[half][i] = d[half] == 0.0f ? codes[half][i] : code + 32;
      for (int lane = 0; lane < kLanes; lane++) {
        // Of each 128 values, the low bits of the first and third 32 share bytes, and of the second and
        // fourth.
        const int place = 16 * lane + i, quarter = place / 32, at = place % 32;
        const auto value = static_cast<uint32_t>(codes[half][i][lane]);
        block[64 * half + 32 * (quarter % 2) + at] |= static_cast<uint8_t>((value & 15) << (quarter / 2 * 4));
        block[kQ6High + 32 * half + at] |= static_cast<uint8_t>(value >> 4 << (2 * quarter));
      }
    }
  }
}

uint8_t* bytes_of(std::byte* block) { return reinterpret_cast<uint8_t*>(block); }
const uint8_t* bytes_of(const std::byte* block) { return reinterpret_cast<const uint8_t*>(block); }

constexpr int64_t kFive = gguf_block(GgufType::q5_0).values;

uint8_t five_bits(float steps) {
  return static_cast<uint8_t>(std::min<int>(31, static_cast<int8_t>(steps + 16.5f)));
}

}  // namespace

void quantise_q4_k(const float* values, int64_t count, std::byte* blocks) {
  for (int64_t first = 0; first < count; first += kSuper, blocks += gguf_block(GgufType::q4_k).bytes)
    quantise_super_q4(values + first, bytes_of(blocks));
}

void dequantise_q4_k(const std::byte* blocks, int64_t count, float* values) {
  for (int64_t first = 0; first < count; first += kSuper, blocks += gguf_block(GgufType::q4_k).bytes) {
    const uint8_t* block = bytes_of(blocks);
    const SixBits six = unpack(block + kQ4Scales);
    for (int64_t i = 0; i < kSuper; i++) {
      const auto of = static_cast<size_t>(i / 32);
      const float d = get_half(block) * static_cast<float>(six.scale[of]),
                  least = get_half(block + 2) * static_cast<float>(six.least[of]);
      const uint8_t pair = block[kQ4Codes + i / 64 * 32 + i % 32];
      values[first + i] = rounded(d * static_cast<float>(i % 64 < 32 ? pair & 15 : pair >> 4)) - least;
    }
  }
}

void quantise_q6_k(const float* values, int64_t count, std::byte* blocks) {
  for (int64_t first = 0; first < count; first += kSuper, blocks += gguf_block(GgufType::q6_k).bytes)
    quantise_super_q6(values + first, bytes_of(blocks));
}

void dequantise_q6_k(const std::byte* blocks, int64_t count, float* values) {
  for (int64_t first = 0; first < count; first += kSuper, blocks += gguf_block(GgufType::q6_k).bytes) {
    const uint8_t* block = bytes_of(blocks);
    for (int64_t i = 0; i < kSuper; i++) {
      const int64_t half = i / 128, quarter = i % 128 / 32, at = i % 32;
      const int low = block[64 * half + 32 * (quarter % 2) + at] >> (quarter / 2 * 4) & 15,
                high = block[kQ6High + 32 * half + at] >> (2 * quarter) & 3;
      const auto scale = static_cast<float>(static_cast<int8_t>(block[kQ6Scales + i / 16]));
      values[first + i] = get_half(block + kQ6Scale) * scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

void quantise_q5_0(const float* values, int64_t count, std::byte* blocks) {
  for (int64_t first = 0; first < count; first += kFive, blocks += gguf_block(GgufType::q5_0).bytes) {
    uint8_t* block = bytes_of(blocks);
    const float* x = values + first;
    float most = 0;
    for (int64_t i = 0; i < kFive; i++)
      if (std::fabs(x[i]) > std::fabs(most)) most = x[i];
    const float d = most / -16.0f, inverse = d == 0 ? 0.0f : 1.0f / d;
    put_half(d, block);
    uint32_t high = 0;
    for (int64_t i = 0; i < kFive / 2; i++) {
      const uint8_t low = five_bits(rounded(x[i] * inverse)),
                    upper = five_bits(rounded(x[i + kFive / 2] * inverse));
      block[6 + i] = static_cast<uint8_t>((low & 15) | (upper & 15) << 4);
      high |= static_cast<uint32_t>(low >> 4) << i | static_cast<uint32_t>(upper >> 4) << (i + kFive / 2);
    }
    std::memcpy(block + 2, &high, sizeof high);
  }
}

void dequantise_q5_0(const std::byte* blocks, int64_t count, float* values) {
  for (int64_t first = 0; first < count; first += kFive, blocks += gguf_block(GgufType::q5_0).bytes) {
    const uint8_t* block = bytes_of(blocks);
    uint32_t high = 0;
    std::memcpy(&high, block + 2, sizeof high);
    for (int64_t i = 0; i < kFive; i++) {
      const uint8_t pair = block[6 + i % (kFive / 2)];
      const int low = i < kFive / 2 ? pair & 15 : pair >> 4;
      values[first + i] =
          get_half(block) * static_cast<float>((low | static_cast<int>(high >> i & 1) << 4) - 16);
    }
  }
}

}  // namespace trainer
