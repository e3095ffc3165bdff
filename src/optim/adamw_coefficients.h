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

}  // namespace trainer
