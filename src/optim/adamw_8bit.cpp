// 8-bit AdamW, and its update on a GPU: adamw_8bit.cu, one launch for all tensors of the same types.
#include "trainer/optim/adamw_8bit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/strings.h"

#include "device/kernels.h"
#include "device/observed.h"
#include "optim/adamw_coefficients.h"
#include "optim/kernel_groups.h"
#include "optim/moment_codes.h"
#include "optim/state_memory.h"

namespace trainer {

AdamW8bit::AdamW8bit(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed,
                     int64_t fewest_coded)
    : parameters_(std::move(parameters)), config_(config), seed_(seed), fewest_coded_(fewest_coded) {
  at::NoGradGuard no_grad;
  for (const TrainedParameter& parameter : parameters_) states_.push_back(state_for(parameter));
}

// bitsandbytes leaves embeddings to its users, and the Trainer of transformers asks for 32 bits for all of
// them (trainer.py, create_optimizer): rows that are seen rarely have moments far below those of their block.
bool AdamW8bit::has_codes(const TrainedParameter& parameter) const {
  return !parameter.embedding && parameter.value.numel() >= fewest_coded_;
}

// All allocation of state is here.
AdamW8bit::State AdamW8bit::state_for(const TrainedParameter& parameter) const {
  const auto zeros = [&](at::IntArrayRef shape, at::ScalarType type) {
    return new_state(shape, parameter.value.options().dtype(type).requires_grad(false));
  };
  const at::IntArrayRef shape = parameter.value.sizes();
  State state;
  if (has_codes(parameter)) {
    const int64_t blocks = adamw_8bit_blocks(parameter.value.numel());
    state = {zeros(shape, at::kByte), zeros(shape, at::kByte), zeros({blocks}, at::kFloat),
             zeros({blocks}, at::kFloat), at::Tensor()};
  } else {
    const at::ScalarType type = config_.state_dtype == StateDtype::bf16 ? at::kBFloat16 : at::kFloat;
    state = {zeros(shape, type), zeros(shape, type), at::Tensor(), at::Tensor(), at::Tensor()};
  }
  if (config_.master_weights && parameter.value.scalar_type() != at::kFloat)
    state.master = zeros(shape, at::kFloat).copy_(parameter.value);
  return state;
}

void AdamW8bit::update(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
                       double learning_rate, Progress& progress) {
  at::NoGradGuard no_grad;
  std::vector<AdamwItem> wide;
  std::vector<Adamw8bitItem> coded;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const at::Tensor gradient = gradients.get(parameters_[i]);
    if (!gradient.defined()) continue;
    const TrainedParameter& parameter = parameters_[i];
    const State& s = states_[i];
    const AdamwUpdate update = adamw_update_of(parameter, config_, learning_rate, steps_ + 1, seed_);
    const at::Tensor weight = parameter.value.detach();
    if (has_codes(parameter)) {
      coded.push_back(
          {{weight, gradient, s.exp_avg, s.exp_avg_sq, s.exp_avg_absmax, s.exp_avg_sq_absmax, s.master},
           update});
    } else {
      wide.push_back({{weight, gradient, s.exp_avg, s.exp_avg_sq, s.master}, update});
    }
  }
  const at::Tensor scale = clip_scale(norm, max_grad_norm);
  adamw_update(wide, scale, progress.wide);
  adamw_8bit_update(coded, scale, progress.coded);
}

void AdamW8bit::step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
                     double learning_rate) {
  update(gradients, norm, max_grad_norm, learning_rate, progress_);
  steps_++;
  progress_ = {};
}

bool AdamW8bit::half_written() const { return progress_.wide.has_begun() || progress_.coded.has_begun(); }

void AdamW8bit::rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) {
  rehearsal_.wide = rehearsal_.coded = {.rehearsal = true};
  update(gradients, norm, max_grad_norm, 0.0, rehearsal_);
  rehearsal_ = {};
}

void AdamW8bit::move_to(at::Device device) {
  at::NoGradGuard no_grad;
  for (State& state : states_)
    move_state(
        {&state.exp_avg, &state.exp_avg_sq, &state.exp_avg_absmax, &state.exp_avg_sq_absmax, &state.master},
        device);
}

OptimizerTensors AdamW8bit::tensors() const {
  OptimizerTensors kept;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const State& state = states_[i];
    auto& of_parameter = kept[parameters_[i].name];
    of_parameter = {{"exp_avg", state.exp_avg}, {"exp_avg_sq", state.exp_avg_sq}};
    if (state.exp_avg_absmax.defined()) {
      of_parameter["exp_avg_absmax"] = state.exp_avg_absmax;
      of_parameter["exp_avg_sq_absmax"] = state.exp_avg_sq_absmax;
    }
    if (state.master.defined()) of_parameter["master"] = state.master;
  }
  return kept;
}

namespace {

// A row of the kernel's table.
struct Adamw8bitRow {
  void* weight;
  const void* gradient;
  void *exp_avg, *exp_avg_sq, *exp_avg_absmax, *exp_avg_sq_absmax, *master;
  uint64_t key;
  int64_t count;
  Coefficients8bit coefficients;
  int32_t first_block;
};

std::string coded_types_of(const Adamw8bitTensors& t) {
  return concat("Weight=", kernel_type(t.weight), " Gradient=", kernel_type(t.gradient));
}

Adamw8bitRow coded_row(const Adamw8bitItem& item, const at::Tensor& gradient, int32_t first_block) {
  const Adamw8bitTensors& t = item.tensors;
  return {t.weight.mutable_data_ptr(),
          gradient.const_data_ptr(),
          t.exp_avg.mutable_data_ptr(),
          t.exp_avg_sq.mutable_data_ptr(),
          t.exp_avg_absmax.mutable_data_ptr(),
          t.exp_avg_sq_absmax.mutable_data_ptr(),
          t.master.defined() ? t.master.mutable_data_ptr() : nullptr,
          item.update.key,
          t.weight.numel(),
          Coefficients8bit(item.update),
          first_block};
}

// What an update reads and writes.
std::vector<at::Tensor> tensors_of_adamw_8bit(const std::vector<const Adamw8bitItem*>& items) {
  std::vector<at::Tensor> all;
  for (const Adamw8bitItem* item : items) {
    const Adamw8bitTensors& t = item->tensors;
    all.push_back(t.gradient);
    for (const at::Tensor& state :
         {t.weight, t.exp_avg, t.exp_avg_sq, t.exp_avg_absmax, t.exp_avg_sq_absmax, t.master})
      if (state.defined()) all.insert(all.end(), 2, state);
  }
  return all;
}

}  // namespace

void adamw_8bit_update_gpu(const std::vector<Adamw8bitItem>& items, const at::Tensor& gradient_scale,
                           AdamwProgress& progress) {
  const at::Device device = items.front().tensors.weight.device();
  const auto all = kernel_groups(items, kernel_file("adamw_8bit"), coded_types_of, coded_row,
                                 [](const Adamw8bitRow& row) { return blocks_for(row.count); });
  const at::Tensor table = kernel_table(all.rows, device);
  const at::Tensor codes =
      kernel_table(std::vector<MomentCodes>{codes_of_exp_avg(), codes_of_exp_avg_sq()}, device);
  // From here on nothing is allocated.
  update_groups(all.groups, progress, [&](const auto& group) {
    observed(
        "trainer::adamw_8bit_update", [&] { return tensors_of_adamw_8bit(group.items); },
        [&] {
          group.kernels->start("adamw_8bit_update", grid_of_blocks(group.blocks), table.const_data_ptr(),
                               static_cast<int>(group.first_row), group.rows, kBlockElements,
                               codes.const_data_ptr(), gradient_scale.const_data_ptr());
        });
  });
}

}  // namespace trainer
