// Repeats a step, or a part of an evaluation, when it runs out of memory, until it fits or nothing is left to
// try.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/training/recovery.h"

namespace trainer {

// How an effective batch is split into micro-batches.
struct Division {
  CutLimits limits;
  bool encoder_decoder = true;
  std::vector<std::vector<int64_t>> slots;  // of each micro-batch
  PackedBudget packed_budget = {};          // tokens of a packed micro-batch; 0: not packed
  int64_t recomputed_blocks = 0;
  int64_t most_blocks = 0;  // blocks that can be recomputed
};

// Splits the batch by the limits of `division`.
void cut_by_limits(const EffectiveBatch& batch, Division& division);
// Halves the budget until the micro-batch of these slots is split. It must have more than one sample.
void cut_smaller(const EffectiveBatch& batch, Division& division, BatchBudget& budget,
                 const std::vector<int64_t>& slots);
// Recomputes all blocks if a sample is as long as one that did not fit without.
void recompute_as_learned(const EffectiveBatch& batch, Division& division, const BatchBudget& budget);
// Returns the size of the micro-batch of these slots: its samples, or its tokens if it is packed.
int64_t size_of(const EffectiveBatch& batch, const Division& division, const std::vector<int64_t>& slots);
// Describes that the micro-batch of these slots ran out of memory, and what replaces it in `division`.
Recovery recovery_of(const std::string& stage, const OutOfMemory& lack, const EffectiveBatch& batch,
                     const Division& division, const std::vector<int64_t>& slots);

// Where an attempt is.
struct Place {
  size_t micro_batch = 0;
  std::string stage;
};

struct AttemptOptions {
  const RecoveryConfig& config;
  at::Device device;
  std::string stage;                     // name of the whole; "": each attempt sets its own
  std::function<void()> clean_up;        // discards what a failed attempt left
  std::function<std::string()> explain;  // text at the end of the final error
  RecoveryListener listener;
};

class Attempts {
 public:
  explicit Attempts(AttemptOptions options) : options_(std::move(options)) {}

  // Calls `work`, and again from the beginning each time it runs out of memory: with smaller micro-batches,
  // and if a single sample does not fit, with every block recomputed; `budget` remembers both. Throws
  // OutOfMemoryError when that is not enough.
  void divide(const EffectiveBatch& batch, Division& division, BatchBudget& budget,
              const std::function<void(Place&)>& work);

  // Calls `work`, and again after freeing memory when it runs out. `work` must continue where it stopped.
  void repeat(const std::string& stage, const std::function<void()>& work);

  int64_t retries() const { return retries_; }

  // Logs the recovery and calls the listener.
  void announce(const Recovery& recovery);

 private:
  void free_memory();
  [[noreturn]] void give_up(const std::string& stage, const OutOfMemory& lack, const std::string& why);

  AttemptOptions options_;
  int64_t retries_ = 0;
};

}  // namespace trainer
