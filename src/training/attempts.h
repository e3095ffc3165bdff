// The attempts at one step, or at one part of an evaluation: done again where memory did not suffice, until
// it does or nothing is left to try.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/training/recovery.h"

namespace trainer {

// How an effective batch goes through the model.
struct Division {
  CutLimits limits;
  bool encoder_decoder = true;
  std::vector<std::vector<int64_t>> slots;  // of each micro-batch
  int64_t packed_budget = 0;                // that they were packed by; 0: they were not
  int64_t recomputed_blocks = 0;
  int64_t most_blocks = 0;  // that can be recomputed
};

// The micro-batches that its limits give.
void cut_by_limits(const EffectiveBatch& batch, Division& division);
// Halves the budget until the micro-batch of these slots is cut into smaller ones; it has more than one.
void cut_smaller(const EffectiveBatch& batch, Division& division, BatchBudget& budget,
                 const std::vector<int64_t>& slots);
// What a micro-batch of these slots has more of than a smaller one: samples; where it is packed, tokens.
int64_t size_of(const EffectiveBatch& batch, const Division& division, const std::vector<int64_t>& slots);
// The lack of memory of the micro-batch of these slots, and what `division` has in its place.
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
  std::string stage;                     // names all of it; "": each attempt says where it is
  std::function<void()> clean_up;        // drops what a failed attempt left
  std::function<std::string()> explain;  // ends the message when it is given up
  RecoveryListener listener;
};

class Attempts {
 public:
  explicit Attempts(AttemptOptions options) : options_(std::move(options)) {}

  // `work` starts anew with each division: with smaller micro-batches, as `budget` remembers, and where a
  // single sample does not fit, with every block recomputed. Throws OutOfMemoryError when that is not enough.
  void divide(const EffectiveBatch& batch, Division& division, BatchBudget& budget,
              const std::function<void(Place&)>& work);

  // `work` goes on where it stopped, once memory was freed.
  void repeat(const std::string& stage, const std::function<void()>& work);

  int64_t retries() const { return retries_; }

  // Logs it, and tells the listener.
  void announce(const Recovery& recovery);

 private:
  void free_memory();
  [[noreturn]] void give_up(const std::string& stage, const OutOfMemory& lack, const std::string& why);

  AttemptOptions options_;
  int64_t retries_ = 0;
};

}  // namespace trainer
