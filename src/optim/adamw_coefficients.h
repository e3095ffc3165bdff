// Coefficients of AdamW and 8-bit AdamW, shared by the CPU's loops, LibTorch's operators and the GPU's
// kernels.
#pragma once

#include <cmath>

#include "trainer/optim/adamw.h"

namespace trainer {

// The factors of an update in fp32, computed in double like torch.optim.AdamW.
struct Coefficients {
  explicit Coefficients(const AdamwUpdate& u)
      : keep(static_cast<float>(1.0 - u.learning_rate * u.weight_decay)),
        one_minus_beta1(static_cast<float>(1.0 - u.beta1)),
        beta2(static_cast<float>(u.beta2)),
        one_minus_beta2(static_cast<float>(1.0 - u.beta2)),
        step_size(
            static_cast<float>(u.learning_rate / (1.0 - std::pow(u.beta1, static_cast<double>(u.step))))),
        root_correction(static_cast<float>(std::sqrt(1.0 - std::pow(u.beta2, static_cast<double>(u.step))))),
        epsilon(static_cast<float>(u.epsilon)) {}
  float keep, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, epsilon;
};

// The factors of an update in fp32, computed in double. The corrections of both moments are in step_size and
// epsilon, as in bitsandbytes. This is of 8-bit AdamW.
struct Coefficients8bit {
  explicit Coefficients8bit(const AdamwUpdate& u)
      : keep(static_cast<float>(1.0 - u.learning_rate * u.weight_decay)),
        beta1(static_cast<float>(u.beta1)),
        one_minus_beta1(static_cast<float>(1.0 - u.beta1)),
        beta2(static_cast<float>(u.beta2)),
        one_minus_beta2(static_cast<float>(1.0 - u.beta2)) {
    const double root = std::sqrt(1.0 - std::pow(u.beta2, static_cast<double>(u.step)));
    step_size =
        static_cast<float>(u.learning_rate * root / (1.0 - std::pow(u.beta1, static_cast<double>(u.step))));
    epsilon = static_cast<float>(u.epsilon * root);
  }
  float keep, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, epsilon;
};

// Returns the factor of a block's moments before they are quantised. Where the quotient would not be finite,
// all moments count as 0.
inline float inverse_scale(float absmax) { return absmax >= 1.17549435e-38f ? 1.0f / absmax : 0.0f; }

}  // namespace trainer
