// The rotary embedding (src/nn/rotate.h). Open: Element, kWidth.
#include "device/kernels/prelude.cuh"

// The layout of x [batch, heads, seq, 2 * half] and of the tables [1 or batch, seq, half], in elements.
struct RotateLayout {
  long long x_batch, x_head, x_position;  // strides
  long long table_batch;                  // 0: one table for all
  int heads, seq, half;
};

// y [batch, seq, heads, 2 * half]. A thread takes kWidth columns of both halves; `direction` 1 or -1.
KERNEL rotate_heads(const Element* x, const Element* cosines, const Element* sines, Element* y,
                    RotateLayout in, float direction, unsigned count) {
  const unsigned i = static_cast<unsigned>(thread_index());
  if (i >= count) return;
  const unsigned packs = in.half / kWidth;
  const unsigned c = i % packs * kWidth, head = i / packs % in.heads, row = i / packs / in.heads;
  const unsigned position = row % in.seq, b = row / in.seq;
  const Element* x1 = x + b * in.x_batch + head * in.x_head + position * in.x_position + c;
  const long long table = b * in.table_batch + static_cast<long long>(position) * in.half + c;
  Element* y1 = y + (static_cast<long long>(row) * in.heads + head) * 2 * in.half + c;
  const auto a = load<kWidth>(x1), b2 = load<kWidth>(x1 + in.half), cosine = load<kWidth>(cosines + table),
             sine = load<kWidth>(sines + table);
  Pack<Element, kWidth> to1, to2;
  for (int k = 0; k < kWidth; k++) {
    const float v1 = wide(a.at[k]), v2 = wide(b2.at[k]);
    const float co = wide(cosine.at[k]), si = wide(sine.at[k]) * direction;
    to1.at[k] = narrow<Element>(rounded<Element>(v1 * co) - rounded<Element>(v2 * si));
    to2.at[k] = narrow<Element>(rounded<Element>(v2 * co) + rounded<Element>(v1 * si));
  }
  store<kWidth>(y1, to1);
  store<kWidth>(y1 + in.half, to2);
}
