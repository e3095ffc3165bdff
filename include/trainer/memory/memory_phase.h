// What memory is allocated for. The memory plan sorts by it what a step needs.
#pragma once

namespace trainer {

enum class MemoryPhase {
  weights,
  adapters,
  optimizer_state,
  input,
  forward,
  loss,       // logits, and the gradients that the loss makes in its forward pass
  recompute,  // a block that runs again in backward
  update,
};

// Of this thread.
MemoryPhase memory_phase();

// Allocations of this thread are for `phase` while it lives.
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
