#include "nn/checkpoint.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "memory/memory_phase.h"
#include "weights/kept_inputs.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Capsule : torch::CustomClassHolder {
  explicit Capsule(CheckpointedBlock checkpointed) : block(std::move(checkpointed)) {}
  std::shared_ptr<void> enter(BlockPass pass) const { return block.enter ? block.enter(pass) : nullptr; }

  CheckpointedBlock block;
  std::shared_ptr<KeptInputs::Kept> kept;  // the hidden states, if they are kept below
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden,
                            const std::optional<at::Tensor>& other, const at::Tensor& /*anchor*/,
                            const c10::intrusive_ptr<Capsule>& capsule) {
    const CheckpointedBlock& block = capsule->block;
    const bool below = block.kept_inputs != nullptr;
    ctx->save_for_backward({below ? at::Tensor() : hidden, other.value_or(at::Tensor())});
    ctx->saved_data["block"] = c10::IValue::make_capsule(capsule);
    const std::shared_ptr<void> entered = capsule->enter(BlockPass::forward);
    const at::Tensor out = block.run(hidden, other);  // a Function's forward runs without grad
    if (below) capsule->kept = block.kept_inputs->keep(hidden);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto capsule = c10::static_intrusive_pointer_cast<Capsule>(ctx->saved_data["block"].toCapsule());
    const std::shared_ptr<KeptInputs::Kept> kept = std::exchange(capsule->kept, nullptr);
    const at::Tensor hidden = (kept ? capsule->block.kept_inputs->bring_back(*kept) : saved[0])
                                  .detach()
                                  .set_requires_grad(ctx->needs_input_grad(0));
    std::optional<at::Tensor> other;
    if (saved[1].defined()) other = saved[1].detach().set_requires_grad(saved[1].requires_grad());
    {
      const InPhase phase(MemoryPhase::recompute);
      at::AutoGradMode with_grad(true);  // the engine runs backward without grad
      const std::shared_ptr<void> entered = capsule->enter(BlockPass::backward);
      const at::Tensor out = capsule->block.run(hidden, other);
      torch::autograd::backward({out}, {grads[0]});
    }
    return {hidden.grad(), other ? other->grad() : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor checkpoint(const at::Tensor& hidden, const std::optional<at::Tensor>& other,
                      const at::Tensor& anchor, CheckpointedBlock block) {
  return Checkpoint::apply(hidden, other, anchor, c10::make_intrusive<Capsule>(std::move(block)));
}

}  // namespace trainer
