#include "trainer/training/trainer.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/data/batching.h"
#include "trainer/memory/device.h"

namespace trainer {

Trainer::Trainer(const Config& config, Model& model, at::Device device, int64_t total_steps)
    : config_(config),
      model_(model),
      device_(device),
      parameters_(trained_parameters(model)),
      gradients_(parameters_, config.optimizer.grad_dtype),
      optimizer_(parameters_, config.optimizer, static_cast<uint64_t>(config.seed)),
      schedule_(config.optimizer, total_steps),
      anchor_(at::zeros({1}, device).set_requires_grad(true)) {}

StepResult Trainer::step(const EffectiveBatch& batch) {
  StepResult result;
  result.learning_rate = schedule_.learning_rate(steps_taken());

  ForwardContext context;
  context.training = true;
  context.random_key = derive(static_cast<uint64_t>(config_.seed), static_cast<uint64_t>(steps_taken()));
  context.recompute_blocks = config_.memory.gradient_checkpointing ? model_.num_blocks() : 0;
  context.label_smoothing = config_.training.label_smoothing;
  context.anchor = anchor_;

  gradients_.clear();
  const double supervised = static_cast<double>(std::max<int64_t>(batch.supervised_tokens, 1));
  const at::Tensor seed =
      at::full({}, 1.0 / supervised, at::TensorOptions().dtype(at::kFloat).device(device_));
  at::Tensor loss_sum = at::zeros({}, seed.options().dtype(at::kDouble));
  for (const std::vector<int64_t>& slots :
       cut(batch, cut_limits(config_, model_.encoder_decoder(), config_.training.batch_size),
           model_.encoder_decoder())) {
    const MicroBatch micro = collate(batch, slots, model_.collate_options(), device_);
    result.cuts.push_back(static_cast<int64_t>(slots.size()));
    if (micro.supervised_labels.numel() == 0) continue;
    const LossSum out = model_.loss(micro, context);
    torch::autograd::backward({out.loss}, {seed});
    loss_sum += out.loss.detach();
  }

  const at::Tensor norm = gradients_.norm();
  optimizer_.step(gradients_, norm, config_.training.max_grad_norm, result.learning_rate);
  gradients_.clear();
  const int64_t every = config_.memory.empty_cache_steps;
  if (every > 0 && steps_taken() % every == 0) empty_cache(device_);

  // The only values read from the device, once everything of the step is under way.
  result.loss = loss_sum.item<double>() / supervised;
  result.grad_norm = norm.item<double>();
  return result;
}

EvaluationResult Trainer::evaluate(const Dataset& dataset) const {
  return trainer::evaluate(model_, dataset, config_, device_);
}

}  // namespace trainer
