// Dropout (src/ops/dropout.h). Open: Element, kWidth.
#include "ops/mask.cuh"

// A thread takes kWidth elements of a row; count: number of such pieces in total.
KERNEL drop(const Element* x, const long long* row_keys, Element* out, int cols, MaskOptions options,
            unsigned count) {
  const unsigned i = static_cast<unsigned>(thread_index());
  if (i >= count) return;
  const unsigned packs = cols / kWidth, row = i / packs, col = i % packs * kWidth;
  const RowMask mask(row_keys[row], options);
  const long long at = static_cast<long long>(row) * cols + col;
  const auto from = load<kWidth>(x + at);
  Pack<Element, kWidth> to;
  for (int k = 0; k < kWidth; k++) {
    to.at[k] = narrow<Element>(mask.keeps(col + k) ? wide(from.at[k]) * mask.scale : 0.0f);
  }
  store<kWidth>(out + at, to);
}
