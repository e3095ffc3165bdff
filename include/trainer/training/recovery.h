// A run's report after it ran out of memory: the numbers, and how it continued (docs/memory.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/data/batching.h"
#include "trainer/memory/batch_budget.h"
#include "trainer/memory/oom.h"

namespace trainer {

struct Recovery {
  std::string stage;  // forward, backward, optimizer, evaluation, rehearsal, ...
  OutOfMemory oom;
  // Samples of the micro-batch that did not fit, and of the largest one that replaces it; equal if the same
  // micro-batch is tried again.
  int64_t from_samples = 0, to_samples = 0;
  int64_t from_tokens = 0, to_tokens = 0;  // the same in tokens, if samples are packed
  int64_t recomputed_blocks = 0;           // in the next attempt
  bool widen_again = false;                // the next attempt keeps no widened weights
  std::string line() const;
};
using RecoveryListener = std::function<void(const Recovery&)>;

// The current sizes of micro-batches, reduced when out of memory. Saved with a run.
struct BatchBudgets {
  BatchBudget training, evaluation;
};

// The micro-batch split of a step, so that it can be repeated (training.replay_cuts).
struct StepCuts {
  std::vector<int64_t> samples;  // samples of each micro-batch
  int64_t recomputed_blocks = 0;
  PackedBudget packed_budget = {};  // 0: not packed by tokens
};

}  // namespace trainer
