// Noise on embedded tokens (src/ops/embedding_noise.h). Open: Element, kWidth.
#include "ops/mask.cuh"

// A thread takes kWidth elements of a row; count: number of such pieces in total.
KERNEL noise(const long long* row_keys, const float* sizes, Element* out, int cols, MaskOptions options,
             unsigned count) {
  const unsigned i = static_cast<unsigned>(thread_index());
  if (i >= count) return;
  const unsigned packs = cols / kWidth, row = i / packs, col = i % packs * kWidth;
  const RowMask mask(row_keys[row], options);
  const float size = sizes[row];
  Pack<Element, kWidth> to;
  for (int k = 0; k < kWidth; k++) {
    const float bits = static_cast<float>(random_bits(mask.low, mask.high, col + k));
    to.at[k] = narrow<Element>((bits * 4.656612873077393e-10f - 1.0f) * size);
  }
  store<kWidth>(out + static_cast<long long>(row) * cols + col, to);
}
