// What a run says when memory did not suffice and how it went on (docs/memory.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/memory/batch_budget.h"
#include "trainer/memory/oom.h"

namespace trainer {

struct Recovery {
  std::string stage;  // forward, backward, optimizer, evaluation, rehearsal, ...
  OutOfMemory lack;
  // Samples of the micro-batch that did not fit, and of the largest one that takes its place; equal where the
  // same is tried again.
  int64_t from_samples = 0, to_samples = 0;
  int64_t from_tokens = 0, to_tokens = 0;  // of the same, where samples are packed by tokens
  int64_t recomputed_blocks = 0;           // in the attempt to come
  std::string line() const;
};
using RecoveryListener = std::function<void(const Recovery&)>;

// How much smaller micro-batches are at present: to be saved with a run.
struct BatchBudgets {
  BatchBudget training, evaluation;
};

// How a step went through the model, to be repeated (training.replay_cuts).
struct StepCuts {
  std::vector<int64_t> samples;  // of each micro-batch
  int64_t recomputed_blocks = 0;
  int64_t packed_budget = 0;  // 0: not packed by tokens
};

}  // namespace trainer
