// SiLU's arithmetic, shared by activation.cu and the kernels that are fused with it.
#pragma once
#include "device/prelude.cuh"

// 1 / (1 + e^-x) and its derivative, which stays accurate where the value is close to 1.
DEVICE void sigmoid(float x, float& value, float& slope) {
  const float e = expf(-fabsf(x)), larger = 1.0f / (1.0f + e), smaller = e * larger;
  value = x < 0.0f ? smaller : larger;
  slope = smaller * larger;
}

// x sigmoid(x) and its derivative.
struct Silu {
  static DEVICE void both(float x, float& value, float& slope) {
    float s, ds;
    sigmoid(x, s, ds);
    value = x * s;
    slope = s + x * ds;
  }
};
