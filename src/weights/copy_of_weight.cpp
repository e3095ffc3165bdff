#include "weights/copy_of_weight.h"

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainer {
namespace {

struct Origin : torch::CustomClassHolder {
  explicit Origin(std::shared_ptr<OffloadedWeight> of) : weight(std::move(of)) {}
  std::shared_ptr<OffloadedWeight> weight;
};

struct CopyOfWeight : torch::autograd::Function<CopyOfWeight> {
  using Context = torch::autograd::AutogradContext;
  static at::Tensor forward(Context* ctx, const at::Tensor& /*leaf*/, const at::Tensor& copy,
                            const c10::intrusive_ptr<Origin>& origin) {
    ctx->set_materialize_grads(false);
    ctx->saved_data["origin"] = c10::IValue::make_capsule(origin);
    const at::AutoDispatchBelowADInplaceOrView plain;  // the result is no view to autograd
    return copy.alias();
  }
  static torch::autograd::variable_list backward(Context* ctx, const torch::autograd::variable_list& grads) {
    const auto origin = c10::static_intrusive_pointer_cast<Origin>(ctx->saved_data["origin"].toCapsule());
    if (grads[0].defined()) origin->weight->take_gradient(grads[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor copy_of_weight(const Weight& weight, const at::Tensor& copy) {
  return CopyOfWeight::apply(weight.tensor(), copy, c10::make_intrusive<Origin>(weight.offloaded()));
}

}  // namespace trainer
