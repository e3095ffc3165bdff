#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/optim/adafactor.h"

namespace trainer {

// A tensor as matrices whose second moment is factored, or else as one row.
struct AdafactorShape {
  explicit AdafactorShape(const AdafactorTensors& t) : factored(t.column.defined()) {
    const at::Tensor& weight = t.weight;
    columns = factored ? weight.size(-1) : weight.numel();
    rows = factored ? weight.size(-2) : 1;
    matrices = weight.numel() / std::max<int64_t>(rows * columns, 1);
  }
  bool factored;
  int64_t matrices, rows, columns;
};

// The factors of an update in fp32.
struct AdafactorCoefficients {
  explicit AdafactorCoefficients(const AdafactorUpdate& u)
      : learning_rate(static_cast<float>(u.learning_rate)),
        keep(static_cast<float>(u.keep)),
        take(static_cast<float>(1.0 - u.keep)),
        epsilon(static_cast<float>(u.epsilon)),
        least_scale(static_cast<float>(u.least_scale)),
        clip_threshold(static_cast<float>(u.clip_threshold)),
        beta1(static_cast<float>(u.beta1)),
        one_minus_beta1(static_cast<float>(1.0 - u.beta1)),
        weight_decay(static_cast<float>(u.weight_decay)),
        scale_parameter(u.scale_parameter ? 1 : 0) {}
  float learning_rate, keep, take, epsilon, least_scale, clip_threshold, beta1, one_minus_beta1, weight_decay;
  int32_t scale_parameter;
};

}  // namespace trainer
