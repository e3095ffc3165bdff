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
#include "nn/adapter_packs.h"
#include "nn/attention.h"
#include "objectives/answers.h"
#include "objectives/objective.h"
#include "optim/state_memory.h"
#include "training/evaluate_labels.h"
#include "training/gradient_sums.h"
#include "training/oom_recovery.h"
#include "training/placement.h"
#include "training/repeated_passes.h"
#include "training/step_of_answers.h"
#include "training/step_of_vectors.h"

namespace trainer {
namespace {

// A replay needs the same layout, because packed samples are in another order than padded ones.
void check_replay(const MicroBatchSplit& split, const StepCuts& replay) {
  const bool packs = packed_budget(split.limits, split.encoder_decoder).tokens > 0,
             packed = replay.packed_budget.tokens > 0;
  if (packs == packed) return;
  throw ConfigError(concat("training.replay_cuts: its steps were ", packed ? "packed" : "not packed",
                           "; set data.packing and training.micro_batching as they were in that run"));
}

// Makes the optimizer. Its state lies where memory.offload says.
std::unique_ptr<Optimizer> make_with_state(std::vector<TrainedParameter> parameters, const Config& config,
                                           const OptimizerFactory& make) {
  const StateBelow below(config.memory.offload.optimizer);
  return make(std::move(parameters), config.optimizer, static_cast<uint64_t>(config.seed));
}

// Returns the last micro-batch that has labels, whose backward pass is the last.
size_t last_with_labels(const EffectiveBatch& batch, const MicroBatchSplit& split) {
  const auto has_labels = [&](int64_t slot) {
    return supervised_tokens(batch.samples[static_cast<size_t>(slot)], split.encoder_decoder) > 0;
  };
  size_t last = split.micro_batches.size();
  while (last-- > 0)
    if (std::ranges::any_of(split.micro_batches[last], has_labels)) break;
  return last;
}

// Of linear layers, and of one table of the vocabulary: the head's.
int64_t count_multiplied_weights(Model& model) {
  int64_t count = model.vocabulary().front()->numel();
  model.for_each_parameter([&](const std::string&, const Parameter& parameter) {
    if (parameter.large) count += parameter.numel();
  });
  return count;
}

}  // namespace

Trainer::Trainer(const Config& config, Model& model, at::Device device, int64_t total_steps,
                 const OptimizerFactory& optimizer, const Ranks& ranks)
    : config_(config),
      model_(model),
      ranks_(ranks),
      device_(device),
      objective_(make_objective(config)),
      answers_loss_(config.objective.compares() ? std::make_unique<AnswersLoss>(config.objective) : nullptr),
      parameters_(trained_parameters(model)),
      gradients_(parameters_, config.optimizer.grad_dtype, std::make_shared<CopyStream>(device)),
      placement_(std::make_unique<Placement>(config, model, device, ranks, parameters_, gradients_)),
      optimizer_(make_with_state(placement_->updated_here(), config, optimizer)),
      state_below_(config.memory.offload.optimizer ? optimizer_->state_bytes() : 0),
      schedule_(config.optimizer, total_steps),
      anchor_(at::zeros({1}, device).set_requires_grad(true)),
      packs_(std::make_shared<AdapterPacks>()),
      repeated_(std::make_unique<RepeatedPasses>(gradients_, device, config.training.deterministic)),
      multiplied_weights_(count_multiplied_weights(model)),
      thrash_watch_([this] { return allocator_retries(device_); }) {}

Trainer::~Trainer() = default;

const std::map<std::string, int64_t>& Trainer::owners() const { return placement_->owners(); }
const std::map<std::string, int64_t>& Trainer::sharded() const { return placement_->sharded(); }
void Trainer::weights_changed() { placement_->weights_changed(); }

StepResult Trainer::step(const EffectiveBatch& given, const StepCuts* replay) {
  StepResult result;
  const int64_t given_before = ranks_.bytes_given();
  result.learning_rate = schedule_.learning_rate(steps_);
  OomRecovery recovery(recovery_options(""));
  if (answers_loss_) prepare_answers(given, recovery);
  if (config_.objective.embeds()) prepare_vectors(given, recovery);
  const EffectiveBatch& batch = answers_ ? answers_->batch : given;
  MicroBatchSplit split = first_split(batch, replay);
  const TermSums sums =
      ranks_.alone() ? accumulate(batch, split, recovery) : accumulate_over_ranks(batch, split, recovery);
  const at::Tensor norm = read_loss_and_norm(batch, sums, recovery, result);
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (result.skipped) {
    gradients_.clear();
    result.sample_losses = losses_one_by_one(batch, recovery);
  } else {
    update(norm, result, recovery);
    gradients_.clear();
  }
  steps_++;
  result.bytes_exchanged = ranks_.bytes_given() - given_before;
  end_step(batch, split, recovery, result);
  return result;
}

// Completes the result, and updates what later steps use.
void Trainer::end_step(const EffectiveBatch& batch, const MicroBatchSplit& split, OomRecovery& recovery,
                       StepResult& result) {
  cache_watch_.after_step(config_.memory.empty_cache_steps, device_);
  for (const std::vector<int64_t>& slots : split.micro_batches)
    result.cuts.push_back(static_cast<int64_t>(slots.size()));
  result.packed_budget = split.packed_budget;
  result.recomputed_blocks = split.recomputed_blocks;
  if (device_.is_meta()) return;
  follow_limit();
  result.retries = recovery.retries();
  if (result.retries == 0) budgets_.training.succeeded(config_.recovery.grow_after);
  if (thrash_watch_.after_step()) answer_thrashing(batch, split, recovery);
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
void Trainer::answer_thrashing(const EffectiveBatch& batch, MicroBatchSplit split, OomRecovery& recovery) {
  if (split.micro_batches.empty()) return;  // a step with fewer samples than ranks
  const std::vector<int64_t> largest = *std::ranges::max_element(
      split.micro_batches, {}, [&](const auto& slots) { return size_of(batch, split, slots); });
  if (static_cast<int64_t>(largest.size()) <= config_.recovery.min_batch_size ||
      !can_be_split(batch, largest))
    return;
  split_smaller(batch, split, budgets_.training, largest);
  empty_cache(device_);
  OutOfMemory oom;
  oom.message = "the allocator had to empty its cache in several steps in a row";
  oom.allocated = memory_use(device_).current;
  recovery.announce(recovery_of("allocator retries", oom, batch, split, largest));
}

void Trainer::rehearse(const EffectiveBatch& batch) {
  answers_.reset();
  if (config_.objective.embeds())
    vectors_ = std::make_unique<StepOfVectors>(config_.objective.similarity_scale, batch);
  OomRecovery recovery(recovery_options("memory test"));
  MicroBatchSplit split = first_split(batch, nullptr);
  run_on_all_ranks(model_, ranks_, [&] {
    accumulate(batch, split, recovery);
    const at::Tensor norm = gradient_norm(recovery);
    recovery.repeat("optimizer",
                    [&] { optimizer_->rehearse(gradients_, norm, config_.training.max_grad_norm); });
  });
  gradients_.clear();
  repeated_->forget();
  empty_cache(device_);
}

// The key of the current step's dropout.
uint64_t Trainer::random_key() const {
  return derive(static_cast<uint64_t>(config_.seed), static_cast<uint64_t>(steps_));
}

ForwardContext Trainer::step_context() const {
  ForwardContext context;
  context.training = true;
  context.free_order = !config_.training.deterministic;
  context.attention_chunk_bytes = attention_chunk_bytes(MemoryLimit::parse(config_.memory.limit).bytes());
  context.anchor = anchor_;
  context.kept_inputs = placement_->kept_inputs();
  context.embedding_noise = config_.training.neftune_noise_alpha;
  return context;
}

at::Tensor Trainer::gradient_norm(OomRecovery& recovery) const {
  at::Tensor norm;
  recovery.repeat("optimizer", [&] {
    const InPhase phase(MemoryPhase::update);
    norm = gradients_.norm();
  });
  return norm;
}

// Computes the gradient of this rank's share of the effective batch; returns the sums of its tokens.
TermSums Trainer::accumulate(const EffectiveBatch& batch, MicroBatchSplit& split, OomRecovery& recovery) {
  TermSums sums;
  std::exception_ptr out_of_memory;
  try {
    PassProgress at;
    OomLoop attempts = recovery.passes(batch, split, budgets_.training, at);
    while (attempts.next()) {
      try {
        sums = run_passes(batch, split, at);
      } catch (const std::exception& error) {
        attempts.failed(error);
      }
    }
    return sums;
  } catch (const OutOfMemoryError&) {
    out_of_memory = std::current_exception();
  }
  if (!answers_ || !pull_apart(recovery)) std::rethrow_exception(out_of_memory);
  split = first_split(batch, nullptr);
  return accumulate(batch, split, recovery);
}

// Runs all passes from the beginning.
TermSums Trainer::run_passes(const EffectiveBatch& batch, const MicroBatchSplit& split, PassProgress& at) {
  at = {0, "forward"};
  weights_changed();  // a checkpoint may have been read
  gradients_.clear();
  ForwardContext context = step_context();
  context.recompute_blocks = split.recomputed_blocks;
  context.light = split.recomputed_blocks > 0 || config_.memory.gradient_checkpointing.is_light();
  context.widen_once = split.widen_once;
  const bool repeated = records_passes() && !device_.is_meta();
  if (repeated) {  // their adapters are packed by each pass: those of an update lie elsewhere in the next one
    repeated_->begin();
  } else {
    repeated_->forget();
    context.packs = packs_;
    packs_->begin();
  }
  const double normaliser = objective_->normaliser(batch.samples, split.encoder_decoder);
  const at::Tensor seed =
      at::full({}, mean_of(1.0, normaliser), at::TensorOptions().device(device_).dtype(at::kFloat));
  TermSums sums(*objective_, Pass::training, device_);
  if (answers_) answers_->sums = {};
  if (vectors_ && !vectors_->has_compared() && split.micro_batches.size() > 1) {
    const at::NoGradGuard no_grad;
    ForwardContext before = context;
    before.kept_inputs = nullptr;
    const auto found = scores_of_split({model_, config_, device_, before, random_key()}, batch, split, at);
    if (!device_.is_meta()) vectors_->compare(found);
    at = {0, "forward"};
  }
  const int64_t count = std::ssize(split.micro_batches);
  const size_t last = last_with_labels(batch, split);
  const bool few_forms = gains_by_few_forms();
  Progress shown(count > 1 ? "micro-batches" : "one micro-batch", count > 1 ? count : 0);
  for (; at.micro_batch < split.micro_batches.size(); at.micro_batch++) {
    if (count > 1) shown.set(static_cast<int64_t>(at.micro_batch));
    at.stage = "forward";
    const std::vector<int64_t>& slots = split.micro_batches[at.micro_batch];
    MicroBatch micro = lay_out(batch, slots, few_forms);
    if (micro.supervised_labels.numel() == 0) continue;
    if (repeated) {
      sums.add(repeated_pass(micro, context, seed));
      continue;
    }
    const Begun begun = forward(std::move(micro), context, slots, seed);
    at.stage = "backward";
    backward(begun.value, begun.gradient, split.recomputed_blocks, at.micro_batch == last);
    sums.add(begun.out);
  }
  packs_->end();
  return sums;
}

Trainer::Begun Trainer::forward(MicroBatch micro, const ForwardContext& context,
                                const std::vector<int64_t>& slots, const at::Tensor& seed) {
  if (answers_) return begin_with_answers(std::move(micro), context, slots);
  if (vectors_) return begin_with_vectors(micro, context, slots);
  LossSum out = model_.loss(micro, context, objective_->options(Pass::training));
  // The memory test has no pairs to compare: rewards take the same passes.
  const bool has_rewards = model_.head().scores() != nullptr && out.log_probabilities.defined();
  return {has_rewards ? out.log_probabilities.sum() : out.loss, seed, out};
}

MicroBatch Trainer::lay_out(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                            bool few_forms) const {
  const InPhase phase(MemoryPhase::input);
  CollateOptions options = collate_options(config_, model_, random_key());
  options.few_forms = few_forms;
  return collate(batch, slots, options, device_);
}

// Runs the backward pass of one micro-batch; `last`: of this rank's share.
void Trainer::backward(const at::Tensor& loss, const at::Tensor& seed, int64_t recomputed_blocks, bool last) {
  const Deterministic sums_in_order(target_of(device_), config_.training.deterministic);
  GradientSums* sums = placement_->sums();
  if (sums != nullptr) sums->begin_pass(recomputed_blocks, last);
  torch::autograd::backward({loss}, {seed});
  if (sums != nullptr) sums->end_pass();
}

// Each sample gets the same dropout as in the step. With several ranks, all learn the losses of all samples.
std::vector<double> Trainer::losses_one_by_one(const EffectiveBatch& batch, OomRecovery& recovery) const {
  at::NoGradGuard no_grad;
  const ForwardContext context = step_context();
  std::vector<double> losses(static_cast<size_t>(batch.rows()));
  run_on_all_ranks(model_, ranks_, [&] {
    for (const int64_t slot : batch.own_slots()) {
      recovery.repeat("forward", [&] {
        const MicroBatch micro = lay_out(batch, {slot});
        if (micro.supervised_labels.numel() == 0) return;
        const LossSum out = model_.loss(micro, context, objective_->options(Pass::training));
        const Sample& sample = batch.samples[static_cast<size_t>(slot)];
        losses[static_cast<size_t>(slot % batch.rows())] +=
            mean_of(out.loss.item<double>(), objective_->normaliser({&sample, 1}, model_.encoder_decoder()));
      });
    }
  });
  return all_reduce(ranks_, losses);
}

MicroBatchSplit Trainer::first_split(const EffectiveBatch& batch, const StepCuts* replay) const {
  MicroBatchSplit split;
  split.encoder_decoder = model_.encoder_decoder();
  split.most_blocks = model_.num_blocks();
  split.limits = cut_limits(config_, split.encoder_decoder, config_.training.batch_size);
  split.limits.halvings = budgets_.training.halvings;
  split.widen_once = config_.memory.widen_once && !budgets_.training.widen_again;
  if (replay != nullptr) {
    check_replay(split, *replay);
    split.micro_batches = cut_as(batch, split.limits.by, replay->samples, replay->packed_budget);
    split.packed_budget = replay->packed_budget;
    split.recomputed_blocks = replay->recomputed_blocks;
  } else {
    split_by_limits(batch, split);
    split.recomputed_blocks = recomputed_blocks(config_, ranks_.count(), model_.num_blocks());
    recompute_as_learned(batch, split, budgets_.training);
  }
  if (placement_->lends_weights())
    split.recomputed_blocks = model_.num_blocks();  // the record may be of a start that lent none
  return split;
}

OomRecoveryOptions Trainer::recovery_options(const std::string& stage) {
  return {config_.recovery, device_, stage,
          /*clean_up=*/
          [this] {
            gradients_.clear();
            packs_->forget();
            placement_->finish_copies();
          },
          /*explain=*/
          [this] { return memory_table(config_, model_, optimizer_->state_bytes() - state_below_, device_); },
          listener_, /*free_spare=*/[this] { return repeated_->stop(); }};
}

void Trainer::move_to(at::Device device) {
  at::NoGradGuard no_grad;
  gradients_.clear();
  repeated_ = std::make_unique<RepeatedPasses>(gradients_, device, config_.training.deterministic);
  packs_->forget();
  placement_->move_to(device);
  {
    const StateBelow below(config_.memory.offload.optimizer);
    optimizer_->move_to(device);
  }
  anchor_ = at::zeros({1}, device).set_requires_grad(true);
  empty_cache(device_);
  device_ = device;
  budgets_ = {};
}

EvaluationResult Trainer::evaluate(const Dataset& dataset, const std::function<void()>& between) {
  weights_changed();
  repeated_->forget();
  return trainer::evaluate(model_, dataset, config_, device_, budgets_.evaluation, listener_, between,
                           ranks_);
}

}  // namespace trainer
