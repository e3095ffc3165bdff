#include "formats/q8_0.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace trainer {

uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  constexpr uint32_t kInfinity = 0x7f800000, kTooLarge = 0x47800000, kSmallestNormal = 0x38800000;
  if (magnitude >= kTooLarge) return sign | (magnitude > kInfinity ? 0x7e00 : 0x7c00);
  if (magnitude < kSmallestNormal) {  // in multiples of 2^-24
    return sign | static_cast<uint16_t>(std::lrint(std::ldexp(std::fabs(value), 24)));
  }
  const uint32_t rebiased = magnitude - (112u << 23), is_odd = rebiased >> 13 & 1;
  return sign | static_cast<uint16_t>((rebiased + 0xfff + is_odd) >> 13);
}

float from_half(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent == 31) {
    magnitude =
        mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent > 0) {
    magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

void quantise_q8_0(const float* values, int64_t count, std::byte* blocks) {
  for (int64_t first = 0; first < count; first += kQ8BlockValues, blocks += kQ8BlockBytes) {
    float largest = 0;
    for (int64_t i = 0; i < kQ8BlockValues; i++) largest = std::max(largest, std::fabs(values[first + i]));
    const float d = largest / 127.0f, inverse = d == 0 ? 0.0f : 1.0f / d;
    const uint16_t scale = to_half(d);
    std::memcpy(blocks, &scale, sizeof scale);
    for (int64_t i = 0; i < kQ8BlockValues; i++) {
      const auto q = static_cast<int8_t>(std::round(values[first + i] * inverse));
      blocks[2 + i] = static_cast<std::byte>(q);
    }
  }
}

void dequantise_q8_0(const std::byte* blocks, int64_t count, float* values) {
  for (int64_t first = 0; first < count; first += kQ8BlockValues, blocks += kQ8BlockBytes) {
    uint16_t scale = 0;
    std::memcpy(&scale, blocks, sizeof scale);
    const float d = from_half(scale);
    for (int64_t i = 0; i < kQ8BlockValues; i++)
      values[first + i] = d * static_cast<float>(static_cast<int8_t>(blocks[2 + i]));
  }
}

}  // namespace trainer
