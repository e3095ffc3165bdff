// Functions of one number that the compiler vectorises inside a loop (libm's are calls). For files compiled
// with -O3 -fno-math-errno -fno-trapping-math.
#pragma once

#include <bit>
#include <cstdint>

// Attributes for loops over numbers.

// Always inlined into such a loop, and compiled with it.
#define TRAINER_INLINE inline __attribute__((always_inline))
// Compiles a function for several kinds of processor; the program chooses one when it starts.
#define TRAINER_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
namespace trainer {

// Returns x, a product, rounded: without this, the compiler may add to it before it rounds (FMA), and does so
// in one loop and not in another.
TRAINER_INLINE float rounded(float x) { return __builtin_assoc_barrier(x); }

// e^x for x <= 0, with a relative error of 1e-7; 0 below -87. NaN stays NaN.
TRAINER_INLINE float fast_exp(float x) {
  const float bounded = x < -87.0f ? -87.0f : x;
  constexpr float round_to_integer = 12582912.0f;  // 1.5 * 2^23: adding it leaves no bits for a fraction
  const float n = (bounded * 1.44269504f + round_to_integer) - round_to_integer;
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two; |r| <= ln 2 / 2
  // Least-squares fit of (e^r - 1 - r) / r^2, weighted to equal relative errors: 3e-9.
  float p = 1.38145954e-3f;
  p = p * r + 8.36871718e-3f;
  p = p * r + 4.16683881e-2f;
  p = p * r + 1.66665206e-1f;
  p = p * r + 4.99999934e-1f;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : (p * r * r + r + 1.0f) * power;
}

// 1 / (1 + e^-x) and its derivative, which stays accurate where the value is close to 1. Both are 0 far out,
// so that a large x times it is 0 there too.
TRAINER_INLINE void fast_sigmoid(float x, float& value, float& slope) {
  const float t = x < 0.0f ? -x : x;
  const float e = fast_exp(-t);
  const float larger = 1.0f / (1.0f + e), smaller = e * larger;
  value = x < 0.0f ? smaller : larger;
  slope = smaller * larger;
}

TRAINER_INLINE float fast_sigmoid(float x) {
  float value, slope;
  fast_sigmoid(x, value, slope);
  return value;
}

// The standard normal distribution at x: its density and its integral from -infinity. The integral uses
// Mills' ratio, so that it stays accurate where it is small.
TRAINER_INLINE void fast_normal(float x, float& density, float& integral) {
  const float t = x < 0.0f ? -x : x;
  const float e = fast_exp(-0.5f * t * t);
  const float w = 1.0f / (1.0f + 0.26f * t);
  // Fit as above of (integral from t) * e^(t^2 / 2) / w, for t up to 14: 2.5e-8.
  float p = 3.05053920e-2f;
  p = p * w - 1.52831166e-1f;
  p = p * w + 2.51495869e-1f;
  p = p * w - 1.50953903e-1f;
  p = p * w + 1.60951062e-1f;
  p = p * w + 5.10264025e-2f;
  p = p * w + 1.03030560e-1f;
  p = p * w + 1.03016710e-1f;
  p = p * w + 1.03759062e-1f;
  const float tail = e * (p * w);
  density = 0.398942280f * e;
  integral = x < 0.0f ? tail : 1.0f - tail;
}

}  // namespace trainer
