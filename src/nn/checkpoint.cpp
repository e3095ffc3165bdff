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

constexpr size_t kOthers = 3;

struct Capsule : torch::CustomClassHolder {
  explicit Capsule(WideCheckpointedBlock checkpointed) : block(std::move(checkpointed)) {}
  std::shared_ptr<void> enter(BlockPass pass) const { return block.enter ? block.enter(pass) : nullptr; }

  WideCheckpointedBlock block;
  std::shared_ptr<KeptInputs::Kept> kept;  // the hidden states, if they are kept below
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  using Other = std::optional<at::Tensor>;
  static variable_list forward(AutogradContext* ctx, const at::Tensor& hidden, const Other& first,
                               const Other& second, const Other& third, const at::Tensor& /*anchor*/,
                               const c10::intrusive_ptr<Capsule>& capsule) {
    const WideCheckpointedBlock& block = capsule->block;
    const bool below = block.kept_inputs != nullptr;
    const variable_list others{first.value_or(at::Tensor()), second.value_or(at::Tensor()),
                               third.value_or(at::Tensor())};
    ctx->save_for_backward({below ? at::Tensor() : hidden, others[0], others[1], others[2]});
    ctx->saved_data["block"] = c10::IValue::make_capsule(capsule);
    const std::shared_ptr<void> entered = capsule->enter(BlockPass::forward);
    variable_list out = block.run(hidden, others);  // a Function's forward runs without grad
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
    variable_list others(kOthers);
    for (size_t i = 0; i < kOthers; i++) {
      const at::Tensor& other = saved[i + 1];
      if (other.defined()) others[i] = other.detach().set_requires_grad(other.requires_grad());
    }
    {
      const InPhase phase(MemoryPhase::recompute);
      at::AutoGradMode with_grad(true);  // the engine runs backward without grad
      const std::shared_ptr<void> entered = capsule->enter(BlockPass::backward);
      const variable_list outs = capsule->block.run(hidden, others);
      variable_list roots, of_roots;  // a result may depend on nothing that is trained
      for (size_t i = 0; i < outs.size(); i++) {
        if (!outs[i].requires_grad()) continue;
        roots.push_back(outs[i]);
        of_roots.push_back(grads[i]);
      }
      torch::autograd::backward(roots, of_roots);
    }
    const auto gradient = [&](size_t i) { return others[i].defined() ? others[i].grad() : at::Tensor(); };
    return {hidden.grad(), gradient(0), gradient(1), gradient(2), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor checkpoint(const at::Tensor& hidden, const std::optional<at::Tensor>& other,
                      const at::Tensor& anchor, CheckpointedBlock block) {
  const auto run = [run = std::move(block.run)](const at::Tensor& x, const variable_list& others) {
    return variable_list{run(x, others[0].defined() ? std::optional(others[0]) : std::nullopt)};
  };
  return checkpoint_wide(hidden, {other.value_or(at::Tensor())}, anchor,
                         {run, std::move(block.enter), std::move(block.kept_inputs)})[0];
}

std::vector<at::Tensor> checkpoint_wide(const at::Tensor& hidden, const std::vector<at::Tensor>& others,
                                        const at::Tensor& anchor, WideCheckpointedBlock block) {
  const auto other = [&](size_t i) {
    return i < others.size() && others[i].defined() ? std::optional(others[i]) : std::nullopt;
  };
  return Checkpoint::apply(hidden, other(0), other(1), other(2), anchor,
                           c10::make_intrusive<Capsule>(std::move(block)));
}

}  // namespace trainer
