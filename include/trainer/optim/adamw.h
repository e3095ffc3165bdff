// AdamW (Loshchilov and Hutter 2019), with the arithmetic of torch.optim.AdamW.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"

namespace trainer {

// The update of one tensor, in place. Arithmetic is fp32. bf16 values are written with stochastic rounding
// keyed by (key, element), because plain rounding loses small updates and keeps second moments from decaying.
struct AdamwUpdate {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  int64_t step;  // this update's number, counted from 1 (bias correction)
  uint64_t key;  // made of (seed, step, tensor)
};
// Returns update `step` of this parameter.
AdamwUpdate adamw_update_of(const TrainedParameter& parameter, const OptimizerConfig& config,
                            double learning_rate, int64_t step, uint64_t seed);

// The tensors of an update. All have the same shape.
struct AdamwTensors {
  at::Tensor weight;               // fp32 or bf16
  at::Tensor gradient;             // fp32 or bf16
  at::Tensor exp_avg, exp_avg_sq;  // fp32 or bf16, both the same
  at::Tensor master;  // fp32 or undefined. If defined, it is updated, and weight gets its rounded value
};

// One tensor of a step. Each has its own decay and key.
struct AdamwItem {
  AdamwTensors tensors;
  AdamwUpdate update;
};

// The progress of a step's updates.
struct AdamwProgress {
  size_t next = 0;         // tensors that have been written, in the order in which they are written
  bool rehearsal = false;  // allocates as the update does, and writes nothing

  bool has_begun() const { return next > 0; }
};

// Updates all tensors, which are on one device. gradient_scale: fp32 scalar on the device, multiplied with
// the gradients (clipping). After an out-of-memory exception, a call with the same arguments continues where
// this one stopped.
void adamw_update(const std::vector<AdamwItem>& items, const at::Tensor& gradient_scale,
                  AdamwProgress& progress);

// The form for a GPU: src/optim/adamw.cu, one launch for all tensors of the same types. It allocates before
// the first launch, so that an update out of memory has written nothing.
void adamw_update_gpu(const std::vector<AdamwItem>& items, const at::Tensor& gradient_scale,
                      AdamwProgress& progress);

// Keeps "exp_avg", "exp_avg_sq" and, with master weights, "master" of each parameter.
class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed);

  std::string name() const override { return "adamw"; }
  void step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
            double learning_rate) override;
  bool half_written() const override { return progress_.has_begun(); }
  void rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) override;
  void move_to(at::Device device) override;
  OptimizerTensors tensors() const override;

 private:
  struct State {
    at::Tensor exp_avg, exp_avg_sq, master;
  };
  std::vector<AdamwItem> items(const Gradients& gradients, double learning_rate) const;
  void update(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm, double learning_rate,
              AdamwProgress& progress);

  std::vector<TrainedParameter> parameters_;
  std::vector<State> states_;
  OptimizerConfig config_;
  uint64_t seed_;
  AdamwProgress progress_;
  // Separate, so that an interrupted rehearsal does not affect the step after it.
  AdamwProgress rehearsal_{.rehearsal = true};
};

}  // namespace trainer
