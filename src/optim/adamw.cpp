// AdamW, and its update on a GPU: adamw.cu, one launch for all tensors of the same types.
#include "trainer/optim/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/random.h"
#include "device/kernels.h"
#include "device/observed.h"
#include "optim/adamw_coefficients.h"
#include "optim/kernel_groups.h"
#include "optim/state_memory.h"

namespace trainer {

AdamwUpdate adamw_update_of(const TrainedParameter& parameter, const OptimizerConfig& config,
                            double learning_rate, int64_t step, uint64_t seed) {
  return {learning_rate,
          config.adam_beta1,
          config.adam_beta2,
          config.adam_epsilon,
          parameter.decay ? config.weight_decay : 0.0,
          step,
          derive(derive(seed, static_cast<uint64_t>(step)), parameter.name)};
}

AdamW::AdamW(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed)
    : parameters_(std::move(parameters)), config_(config), seed_(seed) {
  at::NoGradGuard no_grad;
  for (const TrainedParameter& parameter : parameters_) {
    const bool master = config.master_weights && parameter.value.scalar_type() != at::kFloat;
    const auto options = parameter.value.options()
                             .dtype(state_type(config.state_dtype, parameter.value, master))
                             .requires_grad(false);
    const auto zeros = [&](const at::TensorOptions& of) { return new_state(parameter.value.sizes(), of); };
    State state{zeros(options), zeros(options), {}};
    if (master) state.master = zeros(options.dtype(at::kFloat)).copy_(parameter.value);
    states_.push_back(std::move(state));
  }
}

// The tensors that have gradients.
std::vector<AdamwItem> AdamW::items(const Gradients& gradients, double learning_rate) const {
  std::vector<AdamwItem> out;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const at::Tensor gradient = gradients.get(parameters_[i]);
    if (!gradient.defined()) continue;
    const TrainedParameter& parameter = parameters_[i];
    const State& state = states_[i];
    const AdamwUpdate update = adamw_update_of(parameter, config_, learning_rate, steps_ + 1, seed_);
    out.push_back(
        {{parameter.value.tensor_data(), gradient, state.exp_avg, state.exp_avg_sq, state.master}, update});
  }
  return out;
}

void AdamW::update(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
                   double learning_rate, AdamwProgress& progress) {
  at::NoGradGuard no_grad;
  adamw_update(items(gradients, learning_rate), clip_scale(norm, max_grad_norm), progress);
}

void AdamW::step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
                 double learning_rate) {
  update(gradients, norm, max_grad_norm, learning_rate, progress_);
  steps_++;
  progress_ = {};
}

void AdamW::rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) {
  rehearsal_.next = 0;
  update(gradients, norm, max_grad_norm, 0.0, rehearsal_);
  rehearsal_ = {.rehearsal = true};
}

void AdamW::move_to(at::Device device) {
  at::NoGradGuard no_grad;
  for (State& state : states_) move_state({&state.exp_avg, &state.exp_avg_sq, &state.master}, device);
}

OptimizerTensors AdamW::tensors() const {
  OptimizerTensors kept;
  for (size_t i = 0; i < parameters_.size(); i++) {
    auto& of_parameter = kept[parameters_[i].name];
    of_parameter = {{"exp_avg", states_[i].exp_avg}, {"exp_avg_sq", states_[i].exp_avg_sq}};
    if (states_[i].master.defined()) of_parameter["master"] = states_[i].master;
  }
  return kept;
}

namespace {

// A row of the kernel's table.
struct AdamwRow {
  void* weight;
  const void* gradient;
  void *exp_avg, *exp_avg_sq, *master;
  uint64_t key;
  int64_t count;
  Coefficients coefficients;
  int32_t first_block;
};

AdamwRow adamw_row(const AdamwItem& item, const at::Tensor& gradient, int32_t first_block) {
  const AdamwTensors& t = item.tensors;
  return {t.weight.mutable_data_ptr(),
          gradient.const_data_ptr(),
          t.exp_avg.mutable_data_ptr(),
          t.exp_avg_sq.mutable_data_ptr(),
          t.master.defined() ? t.master.mutable_data_ptr() : nullptr,
          item.update.key,
          t.weight.numel(),
          Coefficients(item.update),
          first_block};
}

// What an update reads and writes.
std::vector<at::Tensor> tensors_of_adamw(const std::vector<const AdamwItem*>& items) {
  std::vector<at::Tensor> all;
  for (const AdamwItem* item : items) {
    const AdamwTensors& t = item->tensors;
    all.push_back(t.gradient);
    for (const at::Tensor& state : {t.weight, t.exp_avg, t.exp_avg_sq, t.master})
      if (state.defined()) all.insert(all.end(), 2, state);
  }
  return all;
}

}  // namespace

void adamw_update_gpu(const std::vector<AdamwItem>& items, const at::Tensor& gradient_scale,
                      AdamwProgress& progress) {
  const auto all = kernel_groups(items, kernel_file("adamw"), kernel_types<AdamwTensors>, adamw_row,
                                 [](const AdamwRow& row) { return blocks_for(row.count); });
  const at::Tensor table = kernel_table(all.rows, items.front().tensors.weight.device());
  // From here on nothing is allocated.
  update_groups(all.groups, progress, [&](const auto& group) {
    observed(
        "trainer::adamw_update", [&] { return tensors_of_adamw(group.items); },
        [&] {
          group.kernels->start("adamw_update", grid_of_blocks(group.blocks), table.const_data_ptr(),
                               static_cast<int>(group.first_row), group.rows, kBlockElements,
                               gradient_scale.const_data_ptr());
        });
  });
}

}  // namespace trainer
