#include "trainer/training/trainer.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"
#include "trainer/device/device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/limit.h"
#include "trainer/training/plan.h"

#include "base/progress.h"
#include "base/random.h"
#include "device/target_device.h"
#include "memory/copy_stream.h"
#include "memory/memory_phase.h"
#include "memory/offload.h"
#include "models/block_hook.h"
#include "nn/attention.h"
#include "objectives/objective.h"
#include "optim/state_memory.h"
#include "training/attempts.h"
#include "training/gradient_sums.h"
#include "training/memory_table.h"
#include "training/rank_owners.h"
#include "training/with_blocks_together.h"
#include "weights/block_store.h"
#include "weights/kept_inputs.h"

namespace trainer {
namespace {

// A replay needs the same layout, because packed samples are in another order than padded ones.
void check_replay(const Division& division, const StepCuts& replay) {
  const bool packs = packed_budget(division.limits, division.encoder_decoder).tokens > 0,
             packed = replay.packed_budget.tokens > 0;
  if (packs == packed) return;
  throw ConfigError(concat("training.replay_cuts: its steps were ", packed ? "packed" : "not packed",
                           "; set data.packing and training.micro_batching as they were in that run"));
}

// Returns the parameters with values that a kernel of the device can reach.
std::vector<TrainedParameter> seen_by_device(std::vector<TrainedParameter> parameters, at::Device device) {
  for (TrainedParameter& parameter : parameters) {
    if (parameter.offloaded && !parameter.offloaded->of_other_rank)
      parameter.value = seen_from(parameter.value.detach(), device);
  }
  return parameters;
}

// Makes the optimizer of the parameters that this rank updates. The state lies where memory.offload says.
std::unique_ptr<Optimizer> make_with_state(std::vector<TrainedParameter> parameters, const Config& config,
                                           const OptimizerFactory& make,
                                           const std::map<std::string, int64_t>& owners, int64_t rank) {
  std::erase_if(parameters, [&](const TrainedParameter& parameter) {
    return !owners.empty() && owners.at(parameter.name) != rank;
  });
  const StateBelow below(config.memory.offload.optimizer);
  return make(std::move(parameters), config.optimizer, static_cast<uint64_t>(config.seed));
}

// Returns the last micro-batch that has labels, whose backward pass is the last.
size_t last_with_labels(const EffectiveBatch& batch, const Division& division) {
  const auto has_labels = [&](int64_t slot) {
    return supervised_tokens(batch.samples[static_cast<size_t>(slot)], division.encoder_decoder) > 0;
  };
  size_t last = division.slots.size();
  while (last-- > 0)
    if (std::ranges::any_of(division.slots[last], has_labels)) break;
  return last;
}

}  // namespace

Trainer::Trainer(const Config& config, Model& model, at::Device device, int64_t total_steps,
                 const OptimizerFactory& optimizer, const Ranks& ranks)
    : config_(config),
      model_(model),
      ranks_(ranks),
      device_(device),
      parameters_(trained_parameters(model)),
      divided_(divided_weights(ranks, config, model)),
      owners_(owners_among(ranks, config, divided_, parameters_)),
      copies_(std::make_shared<CopyStream>(device)),
      gradients_(parameters_, config.optimizer.grad_dtype, copies_),
      seen_(seen_by_device(parameters_, device)),
      exchange_(ranks, device,
                divided_.empty() || target_of(device) == c10::kCPU
                    ? bytes_exchanged(parameters_, config.optimizer.grad_dtype)
                    : TensorExchange::kMessageBytes),
      optimizer_(make_with_state(seen_, config, optimizer, owners_, ranks.rank())),
      state_below_(config.memory.offload.optimizer ? optimizer_->state_bytes() : 0),
      schedule_(config.optimizer, total_steps),
      anchor_(at::zeros({1}, device).set_requires_grad(true)),
      thrash_watch_([this] { return allocator_retries(device_); }) {
  if (!ranks.alone()) {
    // Weights that are fetched take the same ways during the passes.
    const bool early = divided_.empty() && !device.is_meta();
    sums_ = std::make_unique<GradientSums>(ranks, exchange_, *copies_, gradients_, parameters_,
                                           config.optimizer.grad_dtype, owners_, early);
  }
  set_up_offload();
  set_up_sharded_blocks();
}

Trainer::~Trainer() {
  if (!block_store_) return;
  auto& hook = dynamic_cast<BlockHook&>(model_);
  hook.around_block = nullptr;
  hook.after_share = nullptr;
}

void Trainer::set_up_offload() {
  if (config_.memory.offload.activations) kept_inputs_ = std::make_shared<KeptInputs>(copies_);
  if (!config_.memory.offload.weights) return;
  set_up_block_store(offloaded_blocks(model_.blocks(), copies_));
}

void Trainer::set_up_sharded_blocks() {
  if (divided_.empty()) return;
  set_up_block_store(sharded_blocks(model_.blocks(), ranks_, exchange_, device_));
  dynamic_cast<BlockHook&>(model_).after_share = [store = block_store_] { store->serve(); };
}

void Trainer::set_up_block_store(std::unique_ptr<BlockSource> source) {
  auto& hook = dynamic_cast<BlockHook&>(model_);
  hook.around_block = nullptr;  // it shares the store before
  block_store_.reset();
  block_store_ = std::make_shared<BlockStore>(model_.blocks(), std::move(source), copies_);
  hook.around_block = [store = block_store_](const Module& block, BlockPass pass) {
    return store->enter(block, pass);
  };
}

void Trainer::weights_changed() {
  if (block_store_) block_store_->forget();
}

StepResult Trainer::step(const EffectiveBatch& batch, const StepCuts* replay) {
  StepResult result;
  const int64_t given = ranks_.bytes_given();
  result.learning_rate = schedule_.learning_rate(steps_);
  Attempts attempts(attempt_options(""));
  Division division = first_division(batch, replay);
  const at::Tensor loss_sum = accumulate_everywhere(batch, division, attempts);
  const at::Tensor norm = read_loss_and_norm(batch, loss_sum, attempts, result);
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (result.skipped) {
    gradients_.clear();
    result.sample_losses = losses_one_by_one(batch, attempts);
  } else {
    update(norm, result, attempts);
    gradients_.clear();
  }
  steps_++;
  result.bytes_exchanged = ranks_.bytes_given() - given;
  end_step(batch, division, attempts, result);
  return result;
}

// Completes the result, and updates what later steps use.
void Trainer::end_step(const EffectiveBatch& batch, const Division& division, Attempts& attempts,
                       StepResult& result) {
  const int64_t every = config_.memory.empty_cache_steps;
  if (every > 0 && steps_ % every == 0) empty_cache(device_);
  for (const std::vector<int64_t>& slots : division.slots)
    result.cuts.push_back(static_cast<int64_t>(slots.size()));
  result.packed_budget = division.packed_budget;
  result.recomputed_blocks = division.recomputed_blocks;
  if (device_.is_meta()) return;
  follow_limit();
  result.retries = attempts.retries();
  if (result.retries == 0) budgets_.training.succeeded(config_.recovery.grow_after);
  if (thrash_watch_.after_step()) answer_thrashing(batch, division, attempts);
}

// Others on the same GPU come and go.
void Trainer::follow_limit() const {
  if (!device_.is_cuda()) return;
  if (const auto changed = follow_gpu_limit(device_)) {
    log::info(concat(device_.str(), ": other processes now leave ", bytes_string(changed->to),
                     " for this run, instead of ", bytes_string(changed->from), " (memory.limit)"));
  }
}

// Like running out of memory, but only for later steps: this one has ended.
void Trainer::answer_thrashing(const EffectiveBatch& batch, Division division, Attempts& attempts) {
  if (division.slots.empty()) return;  // a step with fewer samples than ranks
  const std::vector<int64_t> largest = *std::ranges::max_element(
      division.slots, {}, [&](const auto& slots) { return size_of(batch, division, slots); });
  if (static_cast<int64_t>(largest.size()) <= config_.recovery.min_batch_size) return;
  cut_smaller(batch, division, budgets_.training, largest);
  empty_cache(device_);
  OutOfMemory lack;
  lack.message = "the allocator had to empty its cache in several steps in a row";
  lack.allocated = memory_use(device_).current;
  attempts.announce(recovery_of("allocator retries", lack, batch, division, largest));
}

void Trainer::rehearse(const EffectiveBatch& batch) {
  Attempts attempts(attempt_options("rehearsal"));
  Division division = first_division(batch, nullptr);
  with_blocks_together(model_, ranks_, [&] {
    accumulate(batch, division, attempts);
    const at::Tensor norm = gradient_norm(attempts);
    attempts.repeat("optimizer",
                    [&] { optimizer_->rehearse(gradients_, norm, config_.training.max_grad_norm); });
    return std::string();
  });
  gradients_.clear();
  empty_cache(device_);
}

// The context of the current step.
ForwardContext Trainer::step_context() const {
  ForwardContext context;
  context.training = true;
  context.random_key = derive(static_cast<uint64_t>(config_.seed), static_cast<uint64_t>(steps_));
  context.free_order = !config_.training.deterministic;
  context.attention_chunk_bytes = attention_chunk_bytes(MemoryLimit::parse(config_.memory.limit).bytes());
  context.anchor = anchor_;
  context.kept_inputs = kept_inputs_;
  return context;
}

at::Tensor Trainer::gradient_norm(Attempts& attempts) const {
  at::Tensor norm;
  attempts.repeat("optimizer", [&] {
    const InPhase phase(MemoryPhase::update);
    norm = gradients_.norm();
  });
  return norm;
}

// Computes the gradient of the whole effective batch; returns the sum of its token losses.
at::Tensor Trainer::accumulate(const EffectiveBatch& batch, Division& division, Attempts& attempts) {
  ForwardContext context = step_context();
  const std::unique_ptr<Objective> objective = make_objective(config_);
  const double inverse = mean_of(1.0, objective->normaliser(batch.samples, model_.encoder_decoder()));
  at::Tensor loss_sum;
  attempts.divide(batch, division, budgets_.training, [&](Place& place) {
    place.stage = "forward";
    context.recompute_blocks = division.recomputed_blocks;
    weights_changed();  // a checkpoint may have been read
    gradients_.clear();
    const auto options = at::TensorOptions().device(device_);
    const at::Tensor seed = at::full({}, inverse, options.dtype(at::kFloat));
    loss_sum = at::zeros({}, options.dtype(at::kDouble));
    const int64_t count = std::ssize(division.slots);
    const size_t last = last_with_labels(batch, division);
    Progress shown(count > 1 ? "micro-batches" : "one micro-batch", count > 1 ? count : 0);
    for (place.micro_batch = 0; place.micro_batch < division.slots.size(); place.micro_batch++) {
      if (count > 1) shown.set(static_cast<int64_t>(place.micro_batch));
      place.stage = "forward";
      const MicroBatch micro = [&] {
        const InPhase phase(MemoryPhase::input);
        return collate(batch, division.slots[place.micro_batch], collate_options(config_, model_), device_);
      }();
      if (micro.supervised_labels.numel() == 0) continue;
      const LossSum out = model_.loss(micro, context, objective->options(Pass::training));
      place.stage = "backward";
      const Deterministic sums(target_of(device_), config_.training.deterministic);
      if (sums_) sums_->begin_pass(division.recomputed_blocks, place.micro_batch == last);
      torch::autograd::backward({out.loss}, {seed});
      if (sums_) sums_->end_pass();
      loss_sum += out.loss.detach();
    }
  });
  return loss_sum;
}

// Each sample gets the same dropout as in the step. With several ranks, all learn the losses of all samples.
std::vector<double> Trainer::losses_one_by_one(const EffectiveBatch& batch, Attempts& attempts) const {
  at::NoGradGuard no_grad;
  const ForwardContext context = step_context();
  const std::unique_ptr<Objective> objective = make_objective(config_);
  std::vector<double> losses(batch.samples.size());
  with_blocks_together(model_, ranks_, [&] {
    for (const int64_t slot : batch.own_slots()) {
      attempts.repeat("forward", [&] {
        const MicroBatch micro = collate(batch, {slot}, collate_options(config_, model_), device_);
        if (micro.supervised_labels.numel() == 0) return;
        const auto at = static_cast<size_t>(slot);
        losses[at] =
            mean_of(model_.loss(micro, context, objective->options(Pass::training)).loss.item<double>(),
                    objective->normaliser({&batch.samples[at], 1}, model_.encoder_decoder()));
      });
    }
    return std::string();
  });
  return add_up(ranks_, losses);
}

Division Trainer::first_division(const EffectiveBatch& batch, const StepCuts* replay) const {
  Division division;
  division.encoder_decoder = model_.encoder_decoder();
  division.most_blocks = model_.num_blocks();
  division.limits = cut_limits(config_, division.encoder_decoder, config_.training.batch_size);
  division.limits.halvings = budgets_.training.halvings;
  if (replay != nullptr) {
    check_replay(division, *replay);
    division.slots = cut_as(batch, division.limits.by, replay->samples, replay->packed_budget);
    division.packed_budget = replay->packed_budget;
    division.recomputed_blocks = replay->recomputed_blocks;
  } else {
    cut_by_limits(batch, division);
    division.recomputed_blocks = recomputed_blocks(config_, ranks_.count(), model_.num_blocks());
    recompute_as_learned(batch, division, budgets_.training);
  }
  if (block_store_)
    division.recomputed_blocks = model_.num_blocks();  // of an earlier start, with all weights here
  return division;
}

AttemptOptions Trainer::attempt_options(const std::string& stage) {
  return {config_.recovery, device_, stage,
          /*clean_up=*/
          [this] {
            gradients_.clear();
            copies_->finish();
          },
          /*explain=*/
          [this] { return memory_table(config_, model_, optimizer_->state_bytes() - state_below_, device_); },
          listener_};
}

void Trainer::move_to(at::Device device) {
  at::NoGradGuard no_grad;
  gradients_.clear();
  model_.for_each_parameter([&](const std::string&, Parameter& parameter) {
    if (parameter.value.offloaded()) return;  // it is in the host's memory
    // In place, because optimizer, gradients and adapters refer to the same tensor.
    for (const at::Tensor& kept : parameter.value.tensors())
      kept.set_data(kept.detach().to(device, kept.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
  });
  for (size_t i = 0; i < seen_.size(); i++) {
    if (seen_[i].offloaded) seen_[i].value.set_data(seen_from(parameters_[i].value.detach(), device));
  }
  {
    const StateBelow below(config_.memory.offload.optimizer);
    optimizer_->move_to(device);
  }
  copies_->move_to(device);
  set_up_offload();
  anchor_ = at::zeros({1}, device).set_requires_grad(true);
  empty_cache(device_);
  device_ = device;
  budgets_ = {};
}

EvaluationResult Trainer::evaluate(const Dataset& dataset, const std::function<void()>& between) {
  weights_changed();
  return trainer::evaluate(model_, dataset, config_, device_, budgets_.evaluation, listener_, between,
                           ranks_);
}

}  // namespace trainer
