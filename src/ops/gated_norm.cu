// RMSNorm times the SiLU of a gate (src/ops/gated_norm.h). Open: Element, kWidth.
#include "ops/norm.cuh"
#include "ops/silu.cuh"

// A token has `heads` heads of `cols` elements. One block per head of a token; tokens of the gate begin at
// multiples of gate_stride, all else is contiguous.
struct GatedHeads {
  int cols, heads;
  long long gate_stride;
};
DEVICE const Element* gate_of(const Element* gate, GatedHeads shape) {
  const unsigned heads = static_cast<unsigned>(shape.heads), token = blockIdx.x / heads;
  return gate + token * shape.gate_stride + static_cast<long long>(blockIdx.x % heads) * shape.cols;
}

// The norm and the activated gate are rounded, as where each is an operator of its own.
KERNEL gated_norm_forward(const Element* x, const Element* gate, const Element* weight, Element* y,
                          float* rstd, GatedHeads shape, float epsilon) {
  const int cols = shape.cols;
  const long long row = static_cast<long long>(blockIdx.x) * cols;
  const Element* own = gate_of(gate, shape);
  const int first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  const float r = row_rstd<kWidth>(x + row, cols, epsilon);
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
  for (int c = first; c < cols; c += step) {
    const auto from = load<kWidth>(x + row + c), by = load<kWidth>(weight + c), z = load<kWidth>(own + c);
    Pack<Element, kWidth> to;
    for (int k = 0; k < kWidth; k++) {
      const float n = rounded<Element>(normalised(from.at[k], r, 0) * wide(by.at[k]));
      float value, slope;
      Silu::both(wide(z.at[k]), value, slope);
      to.at[k] = narrow<Element>(rounded<Element>(value) * n);
    }
    store<kWidth>(y + row + c, to);
  }
}

// g_n, the gradient of the norm's result, is rounded, as where the gate is an operator of its own. It is
// written where a gradient of the weight needs it (else g_normed is null).
KERNEL gated_norm_backward(const Element* g, const Element* x, const Element* gate, const Element* weight,
                           const float* rstd, Element* gx, Element* g_gate, Element* g_normed,
                           GatedHeads shape) {
  const int cols = shape.cols;
  const long long row = static_cast<long long>(blockIdx.x) * cols;
  const Element* own = gate_of(gate, shape);
  const int first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  const float r = rstd[blockIdx.x];
  float sum = 0.0f;
  for (int c = first; c < cols; c += step) {
    const auto gradient = load<kWidth>(g + row + c), from = load<kWidth>(x + row + c),
               by = load<kWidth>(weight + c), z = load<kWidth>(own + c);
    Pack<Element, kWidth> to_gate, to_normed;
    for (int k = 0; k < kWidth; k++) {
      float value, slope;
      Silu::both(wide(z.at[k]), value, slope);
      const float n = rounded<Element>(normalised(from.at[k], r, 0) * wide(by.at[k]));
      const float g_n = rounded<Element>(wide(gradient.at[k]) * rounded<Element>(value));
      to_gate.at[k] = narrow<Element>(wide(gradient.at[k]) * n * slope);
      to_normed.at[k] = narrow<Element>(g_n);
      sum += g_n * wide(by.at[k]) * wide(from.at[k]);
    }
    store<kWidth>(g_gate + row + c, to_gate);
    if (g_normed != nullptr) store<kWidth>(g_normed + row + c, to_normed);
  }
  const float along = over_block<Sum>(sum) * r * r / static_cast<float>(cols);
  for (int c = first; c < cols; c += step) {
    const auto gradient = load<kWidth>(g + row + c), from = load<kWidth>(x + row + c),
               by = load<kWidth>(weight + c), z = load<kWidth>(own + c);
    Pack<Element, kWidth> to;
    for (int k = 0; k < kWidth; k++) {
      float value, slope;
      Silu::both(wide(z.at[k]), value, slope);
      const float g_n = rounded<Element>(wide(gradient.at[k]) * rounded<Element>(value));
      to.at[k] = narrow<Element>((g_n * wide(by.at[k]) - wide(from.at[k]) * along) * r);
    }
    store<kWidth>(gx + row + c, to);
  }
}
