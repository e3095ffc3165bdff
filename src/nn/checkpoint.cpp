#include "trainer/nn/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/memory/memory_phase.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Capsule : torch::CustomClassHolder {
  explicit Capsule(BlockFunction function) : block(std::move(function)) {}
  BlockFunction block;
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden,
                            const std::optional<at::Tensor>& other, const at::Tensor& /*anchor*/,
                            const c10::intrusive_ptr<Capsule>& capsule) {
    ctx->save_for_backward({hidden, other.value_or(at::Tensor())});
    ctx->saved_data["block"] = c10::IValue::make_capsule(capsule);
    return capsule->block(hidden, other);  // a Function's forward runs without grad
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto capsule = c10::static_intrusive_pointer_cast<Capsule>(ctx->saved_data["block"].toCapsule());
    const at::Tensor hidden = saved[0].detach().set_requires_grad(saved[0].requires_grad());
    std::optional<at::Tensor> other;
    if (saved[1].defined()) other = saved[1].detach().set_requires_grad(saved[1].requires_grad());
    {
      const InPhase phase(MemoryPhase::recompute);
      at::AutoGradMode with_grad(true);  // the engine runs backward without grad
      const at::Tensor out = capsule->block(hidden, other);
      torch::autograd::backward({out}, {grads[0]});
    }
    return {hidden.grad(), other ? other->grad() : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor checkpoint(const at::Tensor& hidden, const std::optional<at::Tensor>& other,
                      const at::Tensor& anchor, BlockFunction block) {
  return Checkpoint::apply(hidden, other, anchor, c10::make_intrusive<Capsule>(std::move(block)));
}

}  // namespace trainer
