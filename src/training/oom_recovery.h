// The split of a batch into micro-batches, and the recovery of a step or an evaluation that runs out of
// memory: with smaller micro-batches, with blocks recomputed, or with the same again, until it fits or
// nothing is left to try.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/memory/oom.h"
#include "trainer/models/model.h"
#include "trainer/training/recovery.h"

namespace trainer {

struct MicroBatchSplit {
  CutLimits limits;
  bool encoder_decoder = true;
  std::vector<std::vector<int64_t>> micro_batches;  // the slots of each
  PackedBudget packed_budget = {};                  // tokens of a packed micro-batch; 0: not packed
  int64_t recomputed_blocks = 0;
  int64_t most_blocks = 0;  // blocks that can be recomputed
  bool widen_once = false;  // ForwardContext::widen_once
};

// Splits the batch by the limits of `split`.
void split_by_limits(const EffectiveBatch& batch, MicroBatchSplit& split);
// Halves the budget until the micro-batch of these slots is split. It must have more than one sample.
void split_smaller(const EffectiveBatch& batch, MicroBatchSplit& split, BatchBudget& budget,
                   const std::vector<int64_t>& slots);
// Recomputes all blocks if a sample is as long as one that did not fit without.
void recompute_as_learned(const EffectiveBatch& batch, MicroBatchSplit& split, const BatchBudget& budget);
// Returns the size of the micro-batch of these slots: its samples, or its tokens if it is packed.
int64_t size_of(const EffectiveBatch& batch, const MicroBatchSplit& split, const std::vector<int64_t>& slots);
// Describes that the micro-batch of these slots ran out of memory, and what replaces it in `split`.
Recovery recovery_of(const std::string& stage, const OutOfMemory& oom, const EffectiveBatch& batch,
                     const MicroBatchSplit& split, const std::vector<int64_t>& slots);

// The progress of the passes over a batch.
struct PassProgress {
  size_t micro_batch = 0;
  std::string stage;
};

struct OomRecoveryOptions {
  const RecoveryConfig& config;
  at::Device device;
  std::string stage;                     // name of the whole; "": each attempt sets its own
  std::function<void()> clean_up;        // discards what a failed attempt left
  std::function<std::string()> explain;  // text at the end of the final error
  RecoveryListener listener;
  // Frees memory that only saves time; returns whether there was any. Then the same is attempted again first.
  std::function<bool()> free_spare = {};
};

// The recovery of one step, or of one batch of an evaluation. Its loops share recovery.max_retries, and throw
// OutOfMemoryError when nothing is left to try.
class OomRecovery {
 public:
  explicit OomRecovery(OomRecoveryOptions options) : options_(std::move(options)) {}

  // Returns the loop around the passes over a batch. The next attempt is from the beginning: with smaller
  // micro-batches than the one that failed, and if a single sample does not fit, with every block recomputed.
  // `budget` remembers both. The passes keep `at` up to date. The arguments must outlive the result.
  OomLoop passes(const EffectiveBatch& batch, MicroBatchSplit& split, BatchBudget& budget,
                 const PassProgress& at);

  // Calls `work`, and again after freeing memory when it runs out. `work` must continue where it stopped.
  void repeat(const std::string& stage, const std::function<void()>& work);

  int64_t retries() const { return retries_; }

  // Logs the recovery and calls the listener.
  void announce(const Recovery& recovery);

 private:
  std::string name_of(const std::string& stage) const;
  void count_retry(const std::string& stage, const OutOfMemory& oom);
  [[noreturn]] void give_up(const std::string& stage, const OutOfMemory& oom, const std::string& why);

  OomRecoveryOptions options_;
  int64_t retries_ = 0;
};

// Returns what `work` returns, which goes over the micro-batches of the split from the first one on, in the
// loop of OomRecovery::passes().
template <class Work>
auto run_split(OomRecovery& recovery, const EffectiveBatch& batch, MicroBatchSplit& split,
               BatchBudget& budget, const Work& work) {
  std::invoke_result_t<const Work&, PassProgress&> found{};
  PassProgress at;
  OomLoop attempts = recovery.passes(batch, split, budget, at);
  while (attempts.next()) {
    try {
      found = work(at);
    } catch (const std::exception& error) {
      attempts.failed(error);
    }
  }
  return found;
}

// Returns a line each for weights, gradients, optimizer state, allocated memory, peak and limit; then what to
// change that no memory plan can weigh, cheapest first.
std::string memory_table(const Config& config, Model& model, int64_t optimizer_state, at::Device device);

// The same for an evaluation or a generation: allocated memory, peak and limit, then `advice`.
std::string memory_table(at::Device device, const std::string& advice);

}  // namespace trainer
