// The purpose of an allocation. The memory plan groups the memory of a step by these phases.
#pragma once

namespace trainer {

enum class MemoryPhase {
  weights,
  adapters,
  optimizer_state,
  gradients,  // sums that exist before the first step
  input,
  forward,
  loss,       // logits, and the gradients that the loss computes in its forward pass
  recompute,  // a block that runs again in backward
  update,
};

// The current phase of this thread.
MemoryPhase memory_phase();

// While it lives, allocations of this thread count for `phase`.
class InPhase {
 public:
  explicit InPhase(MemoryPhase phase);
  ~InPhase();
  InPhase(const InPhase&) = delete;
  InPhase& operator=(const InPhase&) = delete;

 private:
  MemoryPhase before_;
};

}  // namespace trainer
