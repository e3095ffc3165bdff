// An optimizer's state: its type, and its place, which is the memory of the parameters' device or offloaded
// memory (memory/offload.h).
#pragma once

#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"

namespace trainer {

// While it lives with `below`, state that this thread allocates is offloaded.
class StateBelow {
 public:
  explicit StateBelow(bool below);
  ~StateBelow();
  StateBelow(const StateBelow&) = delete;
  StateBelow& operator=(const StateBelow&) = delete;

 private:
  bool before_;
};

// Returns the type of a moment by optimizer.state_dtype. auto: fp32 if the weight is fp32 or has an fp32
// master, else bf16.
at::ScalarType state_type(StateDtype wanted, const at::Tensor& weight, bool master);

// Returns zeros for the state of a parameter on options.device(), as a tensor of that device: an update works
// on it in place wherever it lies. Optimizers allocate all their state with this function.
at::Tensor new_state(at::IntArrayRef sizes, const at::TensorOptions& options);

// Puts a copy for another device in the place of each tensor that is defined, for Optimizer::move_to().
void move_state(std::initializer_list<at::Tensor*> state, at::Device device);

}  // namespace trainer
