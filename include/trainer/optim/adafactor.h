// Adafactor (Shazeer and Stern 2018), with the arithmetic of transformers' Adafactor (optimization.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"

namespace trainer {

// The update of one tensor, in place. Arithmetic is fp32. bf16 values are written with stochastic rounding
// keyed by (key, element), as in AdamW.
struct AdafactorUpdate {
  double learning_rate;
  double keep;                  // decay of the second moment's running mean: 1 - step^decay_rate
  double epsilon, least_scale;  // added to squared gradients; least RMS of the weight with scale_parameter
  double clip_threshold;
  double beta1;  // the first moment's decay, if there is one
  bool scale_parameter;
  double weight_decay;
  uint64_t key;  // made of (seed, step, tensor)
};

// The tensors of an update. The second moment of a tensor of two or more dimensions is factored over the last
// two: means over its columns and over its rows. All tensors but the gradient are contiguous.
struct AdafactorTensors {
  at::Tensor weight;    // fp32 or bf16, [..., rows, columns] or [n]
  at::Tensor gradient;  // fp32 or bf16, of that shape
  at::Tensor row;       // fp32 [..., rows]; without factors all of the second moment
  at::Tensor column;    // fp32 [..., columns]; undefined without factors
  at::Tensor exp_avg;   // the first moment, fp32 or bf16; undefined: none
  at::Tensor master;    // fp32 or undefined. If defined, it is updated, and weight gets its rounded value
};

struct AdafactorItem {
  AdafactorTensors tensors;
  AdafactorUpdate update;
};

// The progress of a step's updates.
struct AdafactorProgress {
  size_t next = 0;         // tensors that have been written, in the order in which they are written
  bool rehearsal = false;  // allocates as the update does, and writes nothing
};

// Updates all tensors, which are on one device. gradient_scale: fp32 scalar on the device, multiplied with
// the gradients (clipping). After an out-of-memory exception, a call with the same arguments continues where
// this one stopped. Temporary memory is a few rows and columns of fp32 for each panel of rows.
void adafactor_update(const std::vector<AdafactorItem>& items, const at::Tensor& gradient_scale,
                      AdafactorProgress& progress);

// The form for a GPU: src/optim/adafactor.cu, six launches for all tensors of the same types. It allocates
// before the first launch, and only the last one writes.
void adafactor_update_gpu(const std::vector<AdafactorItem>& items, const at::Tensor& gradient_scale,
                          AdafactorProgress& progress);

// Keeps "exp_avg_sq_row" and "exp_avg_sq_col", or "exp_avg_sq" of a vector; with beta1 "exp_avg", and with
// master weights "master" of each parameter.
class Adafactor final : public Optimizer {
 public:
  Adafactor(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed);

  std::string name() const override { return "adafactor"; }
  void step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
            double learning_rate) override;
  bool half_written() const override { return progress_.next > 0; }
  void rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) override;
  void move_to(at::Device device) override;
  OptimizerTensors tensors() const override;

 private:
  struct State {
    at::Tensor row, column, exp_avg, master;
  };
  State state_for(const at::Tensor& weight) const;
  std::vector<AdafactorItem> items(const Gradients& gradients, double learning_rate) const;

  std::vector<TrainedParameter> parameters_;
  OptimizerConfig config_;
  uint64_t seed_;
  std::vector<State> states_;
  AdafactorProgress progress_;
};

}  // namespace trainer
