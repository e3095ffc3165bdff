// NF4 to numbers (src/ops/nf4.h). Open: Element, kWidth.
#include "ops/nf4.cuh"

// The values of the 4-bit codes and, with double quantisation, of the 8-bit codes of the scales.
struct Nf4Maps {
  float values[16];
  float scales[256];
};

// A thread makes kWidth values, which are in one block of 64; count: number of such pieces. scales: fp32, or
// with nested_scales 8-bit codes. Arguments are in memory for constants, which gives the threads of a warp
// one number at a time: the 16 values, which every thread reads, are copied to where each has a bank of its
// own.
KERNEL dequantise(const unsigned char* codes, const void* scales, const float* nested_scales, float offset,
                  Nf4Maps maps, long long first, Element* out, long long count) {
  __shared__ float values[16];
  if (threadIdx.x < 16) values[threadIdx.x] = maps.values[threadIdx.x];
  __syncthreads();
  const long long i = thread_index();
  if (i >= count) return;
  const long long at = first + i * kWidth, block = at / 64;
  float scale;
  if (nested_scales != nullptr) {
    const float of_code = maps.scales[static_cast<const unsigned char*>(scales)[block]];
    scale = nested_scale(of_code, nested_scales[block / 256], offset);
  } else {
    scale = static_cast<const float*>(scales)[block];
  }
  constexpr int kBytes = kWidth > 1 ? kWidth / 2 : 1;
  const auto pairs = load<kBytes>(codes + at / 2);
  Pack<Element, kWidth> to;
  UNROLL for (int k = 0; k < kWidth; k++) {
    const unsigned char both = pairs.at[k / 2];
    const int code = (at + k) % 2 == 0 ? both >> 4 : both & 15;
    to.at[k] = narrow<Element>(values[code] * scale);
  }
  store<kWidth>(out + i * kWidth, to);
}
