#include "trainer/optim/adafactor.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/random.h"
#include "optim/state_memory.h"

namespace trainer {

Adafactor::Adafactor(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed)
    : parameters_(std::move(parameters)), config_(config), seed_(seed) {
  const at::NoGradGuard no_grad;
  for (const TrainedParameter& parameter : parameters_) states_.push_back(state_for(parameter.value));
}

Adafactor::State Adafactor::state_for(const at::Tensor& weight) const {
  // All state is allocated here.
  const auto zeros = [&](at::IntArrayRef shape, at::ScalarType type) {
    return new_state(shape, weight.options().dtype(type).requires_grad(false));
  };
  State state;
  const bool master = config_.master_weights && weight.scalar_type() != at::kFloat;
  if (weight.dim() < 2) {
    state.row = zeros(weight.sizes(), at::kFloat);
  } else {
    std::vector<int64_t> rows = weight.sizes().vec(), columns = rows;
    rows.pop_back();
    columns.erase(columns.end() - 2);
    state.row = zeros(rows, at::kFloat);
    state.column = zeros(columns, at::kFloat);
  }
  if (config_.beta1) state.exp_avg = zeros(weight.sizes(), state_type(config_.state_dtype, weight, master));
  if (master) state.master = zeros(weight.sizes(), at::kFloat).copy_(weight);
  return state;
}

// The tensors that have gradients.
std::vector<AdafactorItem> Adafactor::items(const Gradients& gradients, double learning_rate) const {
  const int64_t step = steps_ + 1;
  const uint64_t key = derive(seed_, static_cast<uint64_t>(step));
  std::vector<AdafactorItem> out;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const at::Tensor gradient = gradients.get(parameters_[i]);
    if (!gradient.defined()) continue;
    const TrainedParameter& parameter = parameters_[i];
    const State& state = states_[i];
    const AdafactorUpdate update{learning_rate,
                                 1.0 - std::pow(static_cast<double>(step), config_.decay_rate),
                                 config_.eps.first,
                                 config_.eps.second,
                                 config_.clip_threshold,
                                 config_.beta1.value_or(0.0),
                                 config_.scale_parameter,
                                 parameter.decay ? config_.weight_decay : 0.0,
                                 derive(key, parameter.name)};
    out.push_back(
        {{parameter.value.detach(), gradient, state.row, state.column, state.exp_avg, state.master}, update});
  }
  return out;
}

void Adafactor::step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
                     double learning_rate) {
  const at::NoGradGuard no_grad;
  adafactor_update(items(gradients, learning_rate), clip_scale(norm, max_grad_norm), progress_);
  steps_++;
  progress_ = {};
}

void Adafactor::rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) {
  const at::NoGradGuard no_grad;
  AdafactorProgress rehearsal{.rehearsal = true};
  adafactor_update(items(gradients, 0.0), clip_scale(norm, max_grad_norm), rehearsal);
}

void Adafactor::move_to(at::Device device) {
  const at::NoGradGuard no_grad;
  for (State& state : states_) {
    for (at::Tensor* tensor : {&state.row, &state.column, &state.exp_avg, &state.master}) {
      if (tensor->defined()) *tensor = moved_state(*tensor, device);
    }
  }
}

OptimizerTensors Adafactor::tensors() const {
  OptimizerTensors kept;
  for (size_t i = 0; i < parameters_.size(); i++) {
    auto& of_parameter = kept[parameters_[i].name];
    const State& state = states_[i];
    const bool factored = state.column.defined();
    of_parameter[factored ? "exp_avg_sq_row" : "exp_avg_sq"] = state.row;
    if (factored) of_parameter["exp_avg_sq_col"] = state.column;
    if (state.exp_avg.defined()) of_parameter["exp_avg"] = state.exp_avg;
    if (state.master.defined()) of_parameter["master"] = state.master;
  }
  return kept;
}

}  // namespace trainer
