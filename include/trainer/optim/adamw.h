// AdamW (Loshchilov and Hutter 2019), in the arithmetic of torch.optim.AdamW.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/optim/gradients.h"

namespace trainer {

// One tensor's update; all in place. Arithmetic is fp32; bf16 values are written with stochastic rounding
// keyed by (key, element), because plain rounding loses small updates and keeps second moments from decaying.
struct AdamwUpdate {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  int64_t step;  // of this update, counted from 1 (bias correction)
  uint64_t key;  // of (seed, step, tensor)
};
// weight fp32 or bf16; gradient fp32 or bf16; exp_avg, exp_avg_sq fp32 or bf16 (both the same);
// gradient_scale: fp32 scalar that multiplies the gradient (clipping), read on the device. With `master`
// (fp32, else undefined) the update acts on it, and weight gets its rounded value.
void adamw_update(at::Tensor& weight, const at::Tensor& gradient, at::Tensor& exp_avg, at::Tensor& exp_avg_sq,
                  at::Tensor& master, const at::Tensor& gradient_scale, const AdamwUpdate& update);

class AdamW {
 public:
  // All state is allocated here, before the first step.
  AdamW(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed);

  // Applies the gradients, clipped to max_grad_norm (0: not). `norm` is Gradients::norm().
  void step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm, double learning_rate);

  int64_t steps_taken() const { return steps_; }
  int64_t state_bytes() const;

 private:
  struct State {
    at::Tensor exp_avg, exp_avg_sq, master;
  };
  std::vector<TrainedParameter> parameters_;
  std::vector<State> states_;
  OptimizerConfig config_;
  uint64_t seed_;
  int64_t steps_ = 0;
};

}  // namespace trainer
