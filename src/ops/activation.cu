// The product of the activated gate and up (src/ops/activation.h). Open: Element, kWidth.
#include "ops/silu.cuh"

// Each of these and Silu has the activation's value and its derivative.
struct Gelu {
  static DEVICE void both(float x, float& value, float& slope) {
    const float integral = 0.5f * erfcf(-0.707106781f * x);
    value = x * integral;
    slope = integral + x * (0.398942280f * expf(-0.5f * x * x));
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u). Beyond 12 it is 0 or 1, and x * x might be infinite.
struct GeluTanh {
  static DEVICE void both(float x, float& value, float& slope) {
    const float linear = 1.59576912f, cubic = 0.0713548163f;  // 2 sqrt(2 / pi), times 0.044715
    const float above = x < -12.0f ? -12.0f : x, bounded = above > 12.0f ? 12.0f : above;
    float s, ds;
    sigmoid(bounded * (linear + cubic * bounded * bounded), s, ds);
    value = x * s;
    slope = s + bounded * ds * (linear + 3.0f * cubic * bounded * bounded);
  }
};

struct Relu {
  static DEVICE void both(float x, float& value, float& slope) {
    value = x < 0.0f ? 0.0f : x;
    slope = x > 0.0f ? 1.0f : 0.0f;
  }
};

template <class Active>
DEVICE void gate_forward(const Element* gate, const Element* up, Element* out) {
  const auto a = load<kWidth>(gate), b = load<kWidth>(up);
  Pack<Element, kWidth> to;
  for (int k = 0; k < kWidth; k++) {
    float value, slope;
    Active::both(wide(a.at[k]), value, slope);
    to.at[k] = narrow<Element>(rounded<Element>(value) * wide(b.at[k]));
  }
  store<kWidth>(out, to);
}

template <class Active>
DEVICE void gate_backward(const Element* grad, const Element* gate, const Element* up, Element* g_gate,
                          Element* g_up) {
  const auto from = load<kWidth>(grad), a = load<kWidth>(gate), b = load<kWidth>(up);
  Pack<Element, kWidth> to_gate, to_up;
  for (int k = 0; k < kWidth; k++) {
    const float g = wide(from.at[k]);
    float value, slope;
    Active::both(wide(a.at[k]), value, slope);
    to_up.at[k] = narrow<Element>(g * rounded<Element>(value));
    to_gate.at[k] = narrow<Element>(g * wide(b.at[k]) * slope);
  }
  store<kWidth>(g_gate, to_gate);
  store<kWidth>(g_up, to_up);
}

// Layout of gate and up, whose rows of `cols` elements begin at multiples of a stride, and of their
// gradients, and a thread's offset in the contiguous tensors (`at`) and in each of these.
struct Rows {
  long long cols, gate_stride, up_stride, to_gate_stride, to_up_stride;
};
struct Place {
  long long at, gate, up, to_gate, to_up;
};
// Divides in 32 bits, into which the number of threads fits: dividing 64 takes as long as all else.
DEVICE Place place_of(long long at, Rows rows) {
  const unsigned pack = static_cast<unsigned>(at / kWidth), packs = static_cast<unsigned>(rows.cols / kWidth);
  const long long row = pack / packs, col = pack % packs * kWidth;
  return {at, row * rows.gate_stride + col, row * rows.up_stride + col, row * rows.to_gate_stride + col,
          row * rows.to_up_stride + col};
}

// kind: 0 silu, 1 gelu, 2 gelu_tanh, 3 relu. count: elements. cols and strides are multiples of kWidth, and
// so is count. A thread takes kWidth.
KERNEL gated_forward(const Element* gate, const Element* up, Element* out, long long count, Rows rows,
                     int kind) {
  const long long i = thread_index() * kWidth;
  if (i >= count) return;
  const Place p = place_of(i, rows);
  if (kind == 0) gate_forward<Silu>(gate + p.gate, up + p.up, out + p.at);
  if (kind == 1) gate_forward<Gelu>(gate + p.gate, up + p.up, out + p.at);
  if (kind == 2) gate_forward<GeluTanh>(gate + p.gate, up + p.up, out + p.at);
  if (kind == 3) gate_forward<Relu>(gate + p.gate, up + p.up, out + p.at);
}

// g_gate and g_up may be gate and up themselves: a thread writes where it alone has read.
KERNEL gated_backward(const Element* grad, const Element* gate, const Element* up, Element* g_gate,
                      Element* g_up, long long count, Rows rows, int kind) {
  const long long i = thread_index() * kWidth;
  if (i >= count) return;
  const Place p = place_of(i, rows);
  if (kind == 0) gate_backward<Silu>(grad + i, gate + p.gate, up + p.up, g_gate + p.to_gate, g_up + p.to_up);
  if (kind == 1) gate_backward<Gelu>(grad + i, gate + p.gate, up + p.up, g_gate + p.to_gate, g_up + p.to_up);
  if (kind == 2)
    gate_backward<GeluTanh>(grad + i, gate + p.gate, up + p.up, g_gate + p.to_gate, g_up + p.to_up);
  if (kind == 3) gate_backward<Relu>(grad + i, gate + p.gate, up + p.up, g_gate + p.to_gate, g_up + p.to_up);
}
