#include "optim/state_memory.h"

#include <utility>

#include <ATen/ATen.h>

#include "memory/offload.h"

namespace trainer {
namespace {

thread_local bool state_below = false;

}  // namespace

StateBelow::StateBelow(bool below) : before_(std::exchange(state_below, below)) {}
StateBelow::~StateBelow() { state_below = before_; }

at::ScalarType state_type(StateDtype wanted, const at::Tensor& weight, bool master) {
  if (wanted == StateDtype::automatic) {
    return weight.scalar_type() == at::kFloat || master ? at::kFloat : at::kBFloat16;
  }
  return wanted == StateDtype::fp32 ? at::kFloat : at::kBFloat16;
}

at::Tensor new_state(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!state_below) return at::zeros(sizes, options);
  return seen_from(offloaded_zeros(sizes, options), options.device());
}

at::Tensor moved_state(const at::Tensor& state, at::Device device) {
  if (!state_below) return state.to(device, state.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor moved = offloaded_zeros(state.sizes(), state.options().device(device));
  moved.copy_(is_offloaded(state) ? on_host(state) : state);
  return seen_from(moved, device);
}

}  // namespace trainer
