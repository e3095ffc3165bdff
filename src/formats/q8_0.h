// Q8_0, ggml's type with 8 bits per value: blocks of 32 with one scale. https://github.com/ggml-org/ggml
// (block_q8_0 in src/ggml-common.h, quantize_row_q8_0_ref in src/ggml-quants.c)
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer {

// A block: the scale d as fp16, then 32 signed bytes q; a value is d * q.
inline constexpr int64_t kQ8BlockValues = 32, kQ8BlockBytes = 34;
// For a larger magnitude the scale does not fit in fp16.
inline constexpr float kQ8Largest = 127.0f * 65504.0f;

// Gives the same bytes as ggml's reference: d = largest magnitude / 127, q = value / d rounded half away from
// zero, with d before it is rounded to fp16. `count` is a multiple of 32. The values must be finite, with
// magnitudes of at most kQ8Largest.
void quantise_q8_0(const float* values, int64_t count, std::byte* blocks);
void dequantise_q8_0(const std::byte* blocks, int64_t count, float* values);

// fp32 to the bits of fp16 and back. Rounds to nearest even; values beyond the range become infinite.
uint16_t to_half(float value);
float from_half(uint16_t half);

}  // namespace trainer
