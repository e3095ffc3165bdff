// One optimizer step over an effective batch: the heart of the program.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/models/model.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/gradients.h"
#include "trainer/optim/schedule.h"
#include "trainer/training/evaluate.h"

namespace trainer {

struct StepResult {
  double loss = 0;       // mean over the supervised tokens of the step
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  std::vector<int64_t> cuts;  // samples of each micro-batch
};

class Trainer {
 public:
  // The model's trained parameters are those that require grad. Allocates gradients' bookkeeping and
  // optimizer state.
  Trainer(const Config& config, Model& model, at::Device device, int64_t total_steps);

  // Sum of token losses / supervised tokens over the whole effective batch, however it is cut; then one
  // update.
  StepResult step(const EffectiveBatch& batch);

  // Of the model as it is now.
  EvaluationResult evaluate(const Dataset& dataset) const;

  int64_t steps_taken() const { return optimizer_.steps_taken(); }
  const std::vector<TrainedParameter>& parameters() const { return parameters_; }
  int64_t optimizer_state_bytes() const { return optimizer_.state_bytes(); }

 private:
  const Config& config_;
  Model& model_;
  at::Device device_;
  std::vector<TrainedParameter> parameters_;
  Gradients gradients_;
  AdamW optimizer_;
  Schedule schedule_;
  at::Tensor anchor_;
};

}  // namespace trainer
