// The loops of gated activations on the CPU.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "device/op.h"
#include "ops/activation.h"

namespace trainer {
namespace {

// Each of these has the activation's value and its derivative.
struct Silu {
  static TRAINER_INLINE float value(float x) { return x * fast_sigmoid(x); }
  static TRAINER_INLINE void both(float x, float& value, float& slope) {
    float s, ds;
    fast_sigmoid(x, s, ds);
    value = x * s;
    slope = s + x * ds;
  }
};

struct Gelu {
  static TRAINER_INLINE float value(float x) {
    float density, integral;
    fast_normal(x, density, integral);
    return x * integral;
  }
  static TRAINER_INLINE void both(float x, float& value, float& slope) {
    float density, integral;
    fast_normal(x, density, integral);
    value = x * integral;
    slope = integral + x * density;
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u). Beyond 12 it is 0 or 1, and x * x might be infinite.
struct GeluTanh {
  static constexpr float kLinear = 1.59576912f, kCubic = 0.0713548163f;  // 2 sqrt(2 / pi), times 0.044715
  static TRAINER_INLINE float bounded(float x) {
    const float above = x < -12.0f ? -12.0f : x;
    return above > 12.0f ? 12.0f : above;
  }
  static TRAINER_INLINE float value(float x) {
    const float b = bounded(x);
    return x * fast_sigmoid(b * (kLinear + kCubic * b * b));
  }
  static TRAINER_INLINE void both(float x, float& value, float& slope) {
    const float b = bounded(x);
    float s, ds;
    fast_sigmoid(b * (kLinear + kCubic * b * b), s, ds);
    value = x * s;
    slope = s + b * ds * (kLinear + 3.0f * kCubic * b * b);
  }
};

struct Relu {
  static TRAINER_INLINE float value(float x) { return x < 0.0f ? 0.0f : x; }
  static TRAINER_INLINE void both(float x, float& value, float& slope) {
    value = x < 0.0f ? 0.0f : x;
    slope = x > 0.0f ? 1.0f : 0.0f;
  }
};

template <class A, class T>
TRAINER_VECTORISED void gate_range(const T* __restrict__ gate, const T* __restrict__ up, T* __restrict__ out,
                                   int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const T active = static_cast<T>(A::value(static_cast<float>(gate[i])));
    out[i] = static_cast<T>(static_cast<float>(active) * static_cast<float>(up[i]));
  }
}

// g_up may be grad.
template <class A, class T>
TRAINER_VECTORISED void gate_range_grads(const T* grad, const T* __restrict__ gate, const T* __restrict__ up,
                                         T* __restrict__ g_gate, T* g_up, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; i++) {
    const float g = static_cast<float>(grad[i]);
    float value, slope;
    A::both(static_cast<float>(gate[i]), value, slope);
    g_up[i] = static_cast<T>(g * static_cast<float>(static_cast<T>(value)));
    g_gate[i] = static_cast<T>(g * static_cast<float>(up[i]) * slope);
  }
}

// Calls body.operator()<A>() with the functions of an activation that has a kernel.
template <class Body>
void with_activation(int64_t kind, const Body& body) {
  switch (static_cast<Activation>(kind)) {
    case Activation::silu:
      return body.template operator()<Silu>();
    case Activation::gelu:
      return body.template operator()<Gelu>();
    case Activation::gelu_tanh:
      return body.template operator()<GeluTanh>();
    case Activation::relu:
      return body.template operator()<Relu>();
    default:
      TORCH_CHECK(false, "gated_activation: no kernel for activation ", kind);
  }
}

constexpr int64_t kGrain = 1 << 14;  // elements; the least work for a thread

}  // namespace

at::Tensor gated_activation_cpu(const at::Tensor& gate_, const at::Tensor& up_, int64_t kind) {
  TORCH_CHECK(gate_.sizes() == up_.sizes() && gate_.scalar_type() == up_.scalar_type(),
              "gated_activation: gate and up of different shapes or types");
  const at::Tensor gate = gate_.contiguous(), up = up_.contiguous();
  at::Tensor out = at::empty_like(gate);
  if (gate.is_meta()) return out;
  with_element_type(gate, "gated_activation", [&]<class T>() {
    const T *a = gate.const_data_ptr<T>(), *b = up.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    with_activation(kind, [&]<class A>() {
      at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
        gate_range<A>(a + begin, b + begin, to + begin, end - begin);
      });
    });
  });
  return out;
}

void gated_activation_backward_cpu(const at::Tensor& grad, const at::Tensor& gate_, const at::Tensor& up_,
                                   int64_t kind, const at::Tensor& g_gate, const at::Tensor& g_up) {
  const at::Tensor g = grad.contiguous(), gate = gate_.contiguous(), up = up_.contiguous();
  if (gate.is_meta()) return;
  with_element_type(gate, "gated_activation_backward", [&]<class T>() {
    const T *from = g.const_data_ptr<T>(), *a = gate.const_data_ptr<T>(), *b = up.const_data_ptr<T>();
    T *to_gate = g_gate.mutable_data_ptr<T>(), *to_up = g_up.mutable_data_ptr<T>();
    with_activation(kind, [&]<class A>() {
      at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
        gate_range_grads<A>(from + begin, a + begin, b + begin, to_gate + begin, to_up + begin, end - begin);
      });
    });
  });
}

}  // namespace trainer
