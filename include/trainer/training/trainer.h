// One optimizer step over an effective batch: the heart of the program.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/memory/cache_watch.h"
#include "trainer/memory/thrash_watch.h"
#include "trainer/models/model.h"
#include "trainer/optim/gradients.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/parallel/ranks.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/recovery.h"

namespace trainer {

// The rank whose tensors have taken most so far, and the limit there (0: none), in bytes.
struct HighestPeak {
  int64_t rank = 0, peak = 0, limit = 0;
};

struct StepResult {
  double loss = 0;       // the step's loss: mean over its supervised tokens, by their weights
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  // The loss or the gradient norm is NaN or Inf; weights and optimizer state were left unchanged.
  bool skipped = false;
  std::vector<double> sample_losses;  // if skipped: of each sample alone, over its own supervised tokens
  std::vector<int64_t> cuts;          // samples of each micro-batch
  PackedBudget packed_budget = {};    // the most tokens of a packed micro-batch
  int64_t recomputed_blocks = 0;      // blocks that kept only their input
  int64_t retries = 0;                // times that it ran out of memory
  int64_t bytes_exchanged = 0;        // bytes that this rank has sent in all_reduce, broadcast and send_recv
  std::optional<HighestPeak> highest_peak;  // with several ranks, if the step was not skipped
  // The objective's other means, by their names in metrics.jsonl: parts of the loss ("z_loss").
  std::vector<std::pair<std::string, double>> terms;
};

class AdapterPacks;
class AnswersLoss;
class Objective;
class OomRecovery;
class Placement;
class StepOfAnswers;
class StepOfVectors;
class RepeatedPasses;
class TermSums;
struct MicroBatchSplit;
struct OomRecoveryOptions;
struct PassProgress;

class Trainer {
 public:
  // Trains the model's parameters that require grad. Allocates the optimizer state and what is needed to sum
  // gradients. Refers to the configuration, the model and the ranks, which must outlive it. `optimizer`
  // replaces the optimizer that the configuration names. With several ranks, all must call step(), rehearse()
  // and evaluate() in the same order; each trains its share of a batch (EffectiveBatch::share).
  Trainer(const Config& config, Model& model, at::Device device, int64_t total_steps,
          const OptimizerFactory& optimizer = make_optimizer, const Ranks& ranks = Ranks::none());
  ~Trainer();

  // One update. The loss is the sum of token losses / the normaliser of the whole effective batch, no
  // matter how it is split and among how many ranks. When out of memory, the step is repeated in smaller
  // micro-batches (`recovery` in the configuration); the result is the one of that split from the start. When
  // nothing helps, throws OutOfMemoryError with a table of what uses the memory, on all ranks;
  // has_whole_weights() then says whether the weights are those of the last step. A step whose loss or
  // gradient is not finite is not applied, but it counts, also for the schedule. `replay`: a recorded split,
  // used instead of the configured one.
  StepResult step(const EffectiveBatch& batch, const StepCuts* replay = nullptr);

  // Runs a step like step(), including the optimizer, but changes nothing except the budget of later
  // micro-batches.
  void rehearse(const EffectiveBatch& batch);

  // Moves model and optimizer to another device, in the state after the last step. Training continues there,
  // with micro-batches of the configured size. Needs has_whole_weights(). If the device runs out of memory it
  // throws; then each tensor is complete on one of the two devices, and moving back, or elsewhere, loses
  // nothing.
  void move_to(at::Device device);

  // Evaluates the current weights. `between` is called before each micro-batch; it may throw to end the
  // evaluation.
  EvaluationResult evaluate(const Dataset& dataset, const std::function<void()>& between = {});
  // To be called when something else has changed the model's weights.
  void weights_changed();

  // Sets a listener, called each time after an out-of-memory event was logged.
  void on_recovery(RecoveryListener listener) { listener_ = std::move(listener); }
  BatchBudgets& budgets() { return budgets_; }
  // Replaces the watch on the device's allocator.
  void set_thrash_watch(ThrashWatch watch) { thrash_watch_ = std::move(watch); }
  bool has_whole_weights() const { return !updating_ && !optimizer_->half_written(); }

  // Returns the number of steps, including those that were not applied.
  int64_t steps_taken() const { return steps_; }
  // Sets the number of steps that earlier starts of the run have made.
  void set_steps_taken(int64_t steps) { steps_ = steps; }
  // Returns the optimizer's state for the parameters that this rank updates (without parallel.shard: all).
  OptimizerSnapshot optimizer_state() const { return optimizer_->snapshot(); }
  // Returns the rank that updates each parameter, by name; empty: every rank updates all.
  const std::map<std::string, int64_t>& owners() const;
  // Returns the rank that has each sharded weight, trained or not, by name (parallel.shard: all).
  const std::map<std::string, int64_t>& sharded() const;
  const Ranks& ranks() const { return ranks_; }
  // See Optimizer::restore().
  void restore_optimizer(OptimizerSnapshot saved, const std::string& where) {
    optimizer_->restore(std::move(saved), where);
  }
  const std::vector<TrainedParameter>& parameters() const { return parameters_; }
  // Returns whether passes that repeat are recorded as CUDA graphs; on meta: whether the planned run records
  // them.
  bool records_passes() const;

 private:
  OomRecoveryOptions recovery_options(const std::string& stage);
  MicroBatchSplit first_split(const EffectiveBatch& batch, const StepCuts* replay) const;
  ForwardContext step_context() const;
  uint64_t random_key() const;
  TermSums accumulate(const EffectiveBatch& batch, MicroBatchSplit& split, OomRecovery& recovery);
  TermSums run_passes(const EffectiveBatch& batch, const MicroBatchSplit& split, PassProgress& at);
  MicroBatch lay_out(const EffectiveBatch& batch, const std::vector<int64_t>& slots,
                     bool few_forms = false) const;
  void backward(const at::Tensor& loss, const at::Tensor& seed, int64_t recomputed_blocks, bool last);
  // What a backward pass begins with: a result of the forward pass, and its gradient; and all results.
  struct Begun {
    at::Tensor value, gradient;
    LossSum out;
  };
  Begun forward(MicroBatch micro, const ForwardContext& context, const std::vector<int64_t>& slots,
                const at::Tensor& seed);
  // Passes that repeat: src/training/trainer_repeated.cpp.
  bool can_repeat() const;
  bool gains_by_few_forms() const;
  double products_of_a_pass() const;
  at::Device target() const;
  LossSum repeated_pass(const MicroBatch& micro, const ForwardContext& context, const at::Tensor& seed);
  // Objectives of answers: src/training/trainer_answers.cpp.
  Begun begin_with_answers(MicroBatch micro, const ForwardContext& context,
                           const std::vector<int64_t>& slots);
  void prepare_answers(const EffectiveBatch& batch, OomRecovery& recovery);
  void find_references(const EffectiveBatch& others, std::vector<double>& of_others, OomRecovery& recovery);
  std::vector<double> sums_over_ranks(const EffectiveBatch& batch, const ForwardContext& context,
                                      OomRecovery& recovery);
  bool pull_apart(OomRecovery& recovery);
  // Objectives of vectors: src/training/trainer_vectors.cpp.
  void prepare_vectors(const EffectiveBatch& batch, OomRecovery& recovery);
  Begun begin_with_vectors(const MicroBatch& micro, const ForwardContext& context,
                           const std::vector<int64_t>& slots);
  void report_answers(StepResult& result) const;
  at::Tensor gradient_norm(OomRecovery& recovery) const;
  std::vector<double> losses_one_by_one(const EffectiveBatch& batch, OomRecovery& recovery) const;
  void end_step(const EffectiveBatch& batch, const MicroBatchSplit& split, OomRecovery& recovery,
                StepResult& result);
  void follow_limit() const;
  void answer_thrashing(const EffectiveBatch& batch, MicroBatchSplit split, OomRecovery& recovery);
  // Among ranks: src/training/trainer_ranks.cpp.
  TermSums accumulate_over_ranks(const EffectiveBatch& batch, MicroBatchSplit& split, OomRecovery& recovery);
  std::string reached_parameters() const;
  void sum_gradients(const std::vector<std::string>& reached, OomRecovery& recovery);
  at::Tensor read_loss_and_norm(const EffectiveBatch& batch, const TermSums& sums, OomRecovery& recovery,
                                StepResult& result);
  void update(const at::Tensor& norm, StepResult& result, OomRecovery& recovery);

  const Config& config_;
  Model& model_;
  const Ranks& ranks_;
  at::Device device_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<AnswersLoss> answers_loss_;  // null: the objective is of tokens
  std::unique_ptr<StepOfAnswers> answers_;     // of the current step
  std::unique_ptr<StepOfVectors> vectors_;     // of the current step
  bool answers_apart_ = false;                 // those of a row did not fit together
  std::vector<TrainedParameter> parameters_;
  Gradients gradients_;
  std::unique_ptr<Placement> placement_;
  std::unique_ptr<Optimizer> optimizer_;
  bool updating_ = false;  // the ranks may have different weights
  int64_t state_below_;    // bytes of the optimizer's state that are offloaded
  Schedule schedule_;
  int64_t steps_ = 0;
  at::Tensor anchor_;  // ForwardContext::anchor
  std::shared_ptr<AdapterPacks> packs_;
  std::unique_ptr<RepeatedPasses> repeated_;
  int64_t multiplied_weights_;  // by a token that goes through the whole model
  BatchBudgets budgets_;
  ThrashWatch thrash_watch_;
  CacheWatch cache_watch_;
  RecoveryListener listener_;
};

}  // namespace trainer
