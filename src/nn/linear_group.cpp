#include "nn/linear_group.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/matmul.h"

#include "nn/packed_linear_group.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The indices of a projection's tensors in the Function's list; -1: it does not have this tensor.
struct Slots {
  Weight source;  // the weight, if it is not a tensor
  int weight = -1, bias = -1, a = -1, b = -1, low_rank = -1;
  uint64_t key = 0;
  double dropout = 0.0, scale = 1.0;
};

struct Layout : torch::CustomClassHolder {
  std::vector<Slots> projections;
  at::ScalarType type = at::kFloat;  // of products
  int parameters = 0;  // tensors of all projections; the low-rank products are saved behind them
};

// Returns x as this adapter sees it (dropped out), in the type of products.
at::Tensor adapter_input(const at::Tensor& x, const at::Tensor& row_keys, const Slots& slots) {
  return slots.dropout > 0 ? dropout_apply(x, row_keys, slots.key, slots.dropout) : x;
}

struct LinearGroup : torch::autograd::Function<LinearGroup> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& row_keys,
                               at::TensorList parameters, const c10::intrusive_ptr<Layout>& layout) {
    const at::Tensor input = x.to(layout->type);
    variable_list out, saved{x, row_keys};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    for (Slots& slots : layout->projections) {
      const Weight weight = slots.weight < 0 ? slots.source : parameters[slots.weight];
      at::Tensor y = times_transposed(input, weight, x.scalar_type());
      if (slots.a >= 0) {
        const at::Tensor low_rank =
            times_transposed(adapter_input(input, row_keys, slots), parameters[slots.a].to(layout->type));
        add_product(y, low_rank, parameters[slots.b].to(layout->type).t(), slots.scale);
        slots.low_rank = static_cast<int>(saved.size());
        saved.push_back(low_rank);
      }
      if (slots.bias >= 0) y.add_(parameters[slots.bias]);
      out.push_back(y.to(x.scalar_type()));
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["layout"] = c10::IValue::make_capsule(layout);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto layout = c10::static_intrusive_pointer_cast<Layout>(ctx->saved_data["layout"].toCapsule());
    Pass pass{saved, variable_list(static_cast<size_t>(layout->parameters) + 3), {}, {}, layout->type, ctx};
    for (size_t i = 0; i < grads.size(); i++) {
      if (grads[i].defined()) pass.through(layout->projections[i], grads[i].to(layout->type));
    }
    if (pass.gx.defined()) pass.out[0] = pass.gx.to(saved[0].scalar_type());
    return pass.out;
  }

 private:
  static constexpr int kFirst = 2;  // of the parameters, among the saved tensors and the gradients

  struct Pass {
    const variable_list& saved;
    variable_list out;      // gradients of all inputs
    at::Tensor gx, input_;  // in the type of products
    at::ScalarType type;
    AutogradContext* ctx;

    bool needs(int slot) const {
      return slot >= 0 && ctx->needs_input_grad(static_cast<size_t>(slot + kFirst));
    }
    const at::Tensor& parameter(int slot) const { return saved[static_cast<size_t>(slot + kFirst)]; }
    void put(int slot, const at::Tensor& gradient) {
      out[static_cast<size_t>(slot + kFirst)] = gradient.to(parameter(slot).scalar_type());
    }
    const at::Tensor& input() {
      if (!input_.defined()) input_ = saved[0].to(type);
      return input_;
    }

    void through(const Slots& slots, const at::Tensor& gy) {
      const at::ScalarType seen = saved[0].scalar_type();  // the type that the weight was multiplied in
      if (needs(slots.weight)) put(slots.weight, product(gy.t(), input()).to(seen));
      if (needs(slots.bias)) put(slots.bias, gy.sum(0));
      const bool needs_x = ctx->needs_input_grad(0);
      if (needs_x)
        times_into(gx, gy, slots.weight < 0 ? slots.source : Weight(parameter(slots.weight)), seen);
      if (slots.a >= 0) through_adapter(slots, gy, needs_x);
    }

    void through_adapter(const Slots& slots, const at::Tensor& gy, bool needs_x) {
      const at::Tensor& row_keys = saved[1];
      if (needs(slots.b)) {
        put(slots.b, product(gy.t(), saved[static_cast<size_t>(slots.low_rank)]).mul_(slots.scale));
      }
      const at::Tensor a = parameter(slots.a).to(type);
      const at::Tensor g_low_rank = times(gy, parameter(slots.b).to(type)).mul_(slots.scale);
      if (slots.dropout > 0 && needs(slots.a) && needs_x && target_of(gx.device()) == c10::kCPU) {
        const at::Tensor seen =
            dropout_with_gradient(input(), times(g_low_rank, a), gx, row_keys, slots.key, slots.dropout);
        return put(slots.a, product(g_low_rank.t(), seen));
      }
      if (needs(slots.a)) put(slots.a, product(g_low_rank.t(), adapter_input(input(), row_keys, slots)));
      if (!needs_x) return;
      if (slots.dropout > 0) {
        gx.add_(adapter_input(times(g_low_rank, a), row_keys, slots));
      } else {
        times_into(gx, g_low_rank, a);
      }
    }
  };
};

}  // namespace

std::vector<at::Tensor> linear_group(const at::Tensor& x, const at::Tensor& row_keys,
                                     const std::vector<Projection>& projections, at::ScalarType type) {
  if (can_pack(x, projections, type)) return packed_linear_group(x, row_keys, projections);
  variable_list parameters;
  auto layout = c10::make_intrusive<Layout>();
  const auto slot = [&](const at::Tensor& tensor) {
    parameters.push_back(tensor);
    return static_cast<int>(parameters.size()) - 1;
  };
  for (const Projection& p : projections) {
    Slots slots;
    if (p.weight.is_tensor()) {
      slots.weight = slot(p.weight.tensor());
    } else {
      slots.source = p.weight;
    }
    if (p.bias) slots.bias = slot(*p.bias);
    if (p.a.defined()) {
      slots.a = slot(p.a);
      slots.b = slot(p.b);
    }
    slots.key = p.key;
    slots.dropout = p.dropout;
    slots.scale = p.scale;
    layout->projections.push_back(slots);
  }
  layout->type = type;
  layout->parameters = static_cast<int>(parameters.size());
  return LinearGroup::apply(x, row_keys, at::TensorList(parameters), layout);
}

}  // namespace trainer
