// ggml's types with 4 to 6 bits a value. https://github.com/ggml-org/ggml (src/ggml-common.h: block_q4_K,
// block_q5_0, block_q6_K; src/ggml-quants.c: quantize_row_q4_K_ref and its like)
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer {

// Blocks of formats/gguf_blocks.h. Each function gives the same bytes as ggml's reference without an
// importance matrix; `count` is a multiple of the block. The values must be finite, with magnitudes of at
// most kKQuantsLargest, beyond which a scale may not fit in fp16.
inline constexpr float kKQuantsLargest = 1e6f;

// A super-block of 256 values: 8 blocks with a scale and a minimum of 6 bits each, codes of 4 bits. Scales
// and minima are searched for: the least error, weighted by magnitude, among 21 tries.
void quantise_q4_k(const float* values, int64_t count, std::byte* blocks);
void dequantise_q4_k(const std::byte* blocks, int64_t count, float* values);

// A super-block of 256 values: 16 blocks with a scale of 8 bits each, codes of 6 bits; the best of 19 scales.
void quantise_q6_k(const float* values, int64_t count, std::byte* blocks);
void dequantise_q6_k(const std::byte* blocks, int64_t count, float* values);

// A block of 32 values: a scale in fp16, codes of 5 bits.
void quantise_q5_0(const float* values, int64_t count, std::byte* blocks);
void dequantise_q5_0(const std::byte* blocks, int64_t count, float* values);

}  // namespace trainer
