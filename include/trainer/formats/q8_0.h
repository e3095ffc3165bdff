// Q8_0, ggml's type of 8 bits a value: blocks of 32 with one scale. https://github.com/ggml-org/ggml
// (block_q8_0 in src/ggml-common.h, quantize_row_q8_0_ref in src/ggml-quants.c)
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer {

// A block: the scale d as fp16, then 32 signed bytes q; a value is d * q.
inline constexpr int64_t kQ8BlockValues = 32, kQ8BlockBytes = 34;
// A larger magnitude has no scale in fp16.
inline constexpr float kQ8Largest = 127.0f * 65504.0f;

// The same bytes as ggml's reference: d = largest magnitude / 127, q = value / d rounded half away from zero
// by the d that is not yet rounded to fp16. `count` is a multiple of 32; the values are finite and at most
// kQ8Largest.
void quantise_q8_0(const float* values, int64_t count, std::byte* blocks);
void dequantise_q8_0(const std::byte* blocks, int64_t count, float* values);

// fp16, rounded to nearest even; beyond its range infinite.
uint16_t to_half(float value);
float from_half(uint16_t half);

}  // namespace trainer
