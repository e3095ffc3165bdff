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
// What an update reads and writes, of one shape.
struct AdamwTensors {
  at::Tensor weight;               // fp32 or bf16
  at::Tensor gradient;             // fp32 or bf16
  at::Tensor exp_avg, exp_avg_sq;  // fp32 or bf16, both the same
  at::Tensor master;  // fp32 or undefined. With it the update acts on it, and weight gets its rounded value
};

// gradient_scale: fp32 scalar on the device that multiplies the gradient (clipping).
void adamw_update(const AdamwTensors& tensors, const at::Tensor& gradient_scale, const AdamwUpdate& update);

// What devices without a kernel of ours use: the same with LibTorch's operators and the same random bits.
void adamw_update_composite(const AdamwTensors& tensors, const at::Tensor& gradient_scale,
                            const AdamwUpdate& update);

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
