#include "nn/linear_group.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trainer/weights/weight.h"

#include "device/target_device.h"
#include "gemm/products.h"
#include "nn/packed_linear_group.h"
#include "nn/restored_input.h"
#include "ops/dropout.h"
#include "ops/matmul.h"
#include "weights/weight_products.h"

namespace trainer {
namespace {

// Products that do not depend on each other, computed together where that saves work: this program's own
// products (gemm/products.h) prepare an operand once that several of them have. Others are computed one
// by one.
class ProductGroup {
 public:
  // Each of these is sum += scale * x y, or makes it the sum if that is undefined. The matrices are of the
  // type of products (ops/matmul.h), a weight's values are rounded to `type`. Sums are complete after run(),
  // at the latest; a product of one that is not waits for it. A defined sum that is passed is no operand of a
  // product that waits.
  void add(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale = 1.0);
  void add_times(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type);  // x w
  // sum = x w^T, for an undefined sum
  void add_times_transposed(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type);

  void run();

 private:
  // Returns whether the product could be taken.
  bool takes(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale);

  std::vector<SummedProduct> waiting_;
};

// Others are converted for their product, one at a time.
bool is_plain(const Weight& w, at::ScalarType type) { return w.is_tensor() && w.scalar_type() == type; }

bool ProductGroup::takes(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale) {
  if (!suits_builtin(x, y)) return false;
  const auto is_operand = [&](const SummedProduct& product) {
    return product.sum.is_alias_of(x) || product.sum.is_alias_of(y);
  };
  if (std::ranges::any_of(waiting_, is_operand)) run();
  const bool begun = sum.defined();
  if (!begun) sum = at::empty({x.size(0), y.size(1)}, x.options());
  waiting_.push_back({sum, x, y, scale, begun});
  return true;
}

void ProductGroup::add(at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale) {
  if (takes(sum, x, y, scale)) return;
  run();
  if (sum.defined()) return add_product(sum, x, y, scale);
  sum = product(x, y);
  if (scale != 1.0) sum.mul_(scale);
}

void ProductGroup::add_times(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type) {
  if (is_plain(w, type) && takes(sum, x, w.tensor(), 1.0)) return;
  run();
  times_into(sum, x, w, type);
}

void ProductGroup::add_times_transposed(at::Tensor& sum, const at::Tensor& x, const Weight& w,
                                        at::ScalarType type) {
  if (is_plain(w, type) && takes(sum, x, w.tensor().t(), 1.0)) return;
  run();
  sum = times_transposed(x, w, type);
}

void ProductGroup::run() {
  if (!waiting_.empty()) add_builtin_products(waiting_);
  waiting_.clear();
}

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
  at::ScalarType type = at::kFloat;  // in which products are computed
  at::ScalarType seen = at::kFloat;  // that of x, in which weights are multiplied
  int parameters = 0;  // tensors of all projections; the low-rank products are saved behind them
  RestoredInput input;
};

// Returns x as this adapter sees it (dropped out), in the type of products.
at::Tensor adapter_input(const at::Tensor& x, const at::Tensor& row_keys, const Slots& slots) {
  return slots.dropout > 0 ? dropout_apply(x, row_keys, slots.key, slots.dropout) : x;
}

struct LinearGroup : torch::autograd::Function<LinearGroup> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& row_keys,
                               at::TensorList parameters, const c10::intrusive_ptr<Layout>& layout) {
    const at::Tensor input = x.to(layout->type);
    const bool one_by_one = layout->type != x.scalar_type();  // see Pass
    variable_list out(layout->projections.size()), saved{row_keys};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ProductGroup products;
    for (Slots& slots : layout->projections) {
      if (slots.a < 0) continue;
      slots.low_rank = static_cast<int>(saved.size());
      products.add(saved.emplace_back(), adapter_input(input, row_keys, slots),
                   parameters[slots.a].to(layout->type).t());
      if (slots.dropout > 0) products.run();  // now: the dropped-out x is not kept
    }
    const auto finish = [&](size_t i) {
      products.run();
      const int bias = layout->projections[i].bias;
      if (bias >= 0) out[i].add_(parameters[bias]);
      out[i] = out[i].to(x.scalar_type());
    };
    for (size_t i = 0; i < out.size(); i++) {
      const Slots& slots = layout->projections[i];
      const Weight weight = slots.weight < 0 ? slots.source : parameters[slots.weight];
      products.add_times_transposed(out[i], input, weight, x.scalar_type());
      if (slots.a >= 0)
        products.add(out[i], saved[static_cast<size_t>(slots.low_rank)],
                     parameters[slots.b].to(layout->type).t(), slots.scale);
      if (one_by_one) finish(i);
    }
    for (size_t i = 0; i < out.size() && !one_by_one; i++) finish(i);
    layout->input.save(x, saved);
    ctx->save_for_backward(saved);
    ctx->saved_data["layout"] = c10::IValue::make_capsule(layout);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto layout = c10::static_intrusive_pointer_cast<Layout>(ctx->saved_data["layout"].toCapsule());
    Pass pass{saved, variable_list(static_cast<size_t>(layout->parameters) + 3), {}, {}, *layout, ctx};
    pass.run(layout->projections, grads);
    return pass.out;
  }

 private:
  // The index of the first parameter in the saved tensors, and in the inputs and their gradients.
  static constexpr int kFirstSaved = 1, kFirst = 2;

  struct Pass {
    const variable_list& saved;
    variable_list out;      // gradients of all inputs
    at::Tensor gx, input_;  // in the type of products
    const Layout& layout;
    AutogradContext* ctx;

    bool needs(int slot) const {
      return slot >= 0 && ctx->needs_input_grad(static_cast<size_t>(slot + kFirst));
    }
    const at::Tensor& parameter(int slot) const { return saved[static_cast<size_t>(slot + kFirstSaved)]; }
    void put(int slot, const at::Tensor& gradient) {
      out[static_cast<size_t>(slot + kFirst)] = gradient.to(parameter(slot).scalar_type());
    }
    const at::Tensor& input() {
      if (!input_.defined()) input_ = layout.input.restore(saved).to(type);
      return input_;
    }

    // The gradients of one projection, in the type of products.
    struct Gradients {
      at::Tensor weight, b_transposed, low_rank;  // undefined: not needed
    };

    void run(const std::vector<Slots>& projections, const variable_list& grads) {
      std::vector<Gradients> gradients(grads.size());
      for (size_t i = 0; i < grads.size(); i++) {
        if (!grads[i].defined()) continue;
        gradients[i] = begin(projections[i], grads[i].to(type));
        if (one_by_one()) finish(projections[i], gradients[i]);
      }
      for (size_t i = 0; i < grads.size() && !one_by_one(); i++) {
        if (grads[i].defined()) finish(projections[i], gradients[i]);
      }
      if (gx.defined()) out[0] = gx.to(seen());
    }

    at::ScalarType seen() const { return layout.seen; }
    // Returns whether tensors exist in two types, and so only those of one projection at a time.
    bool one_by_one() const { return type != seen(); }

    // Asks for the products with the gradient of a projection's output.
    Gradients begin(const Slots& slots, const at::Tensor& gy) {
      Gradients out;
      if (needs(slots.bias)) put(slots.bias, gy.sum(0));
      if (needs(slots.weight) && adds_to_gradient(parameter(slots.weight), type)) {
        add_product(parameter(slots.weight).grad(), gy.t(), input());
      } else if (needs(slots.weight)) {
        products.add(out.weight, gy.t(), input());
        if (one_by_one()) put_weight(slots, out);
      }
      if (ctx->needs_input_grad(0))
        products.add_times(gx, gy, slots.weight < 0 ? slots.source : Weight(parameter(slots.weight)), seen());
      if (slots.a < 0) return out;
      // Transposed, because built-in products with AVX-512 then read gy as it is, in fp32.
      if (needs(slots.b))
        products.add(out.b_transposed, saved[static_cast<size_t>(slots.low_rank)].t(), gy, slots.scale);
      products.add(out.low_rank, gy, parameter(slots.b).to(type), slots.scale);
      return out;
    }

    void finish(const Slots& slots, Gradients& gradients) {
      products.run();
      if (gradients.weight.defined()) put_weight(slots, gradients);
      if (gradients.b_transposed.defined()) put(slots.b, gradients.b_transposed.t().contiguous());
      if (slots.a >= 0) through_a(slots, gradients.low_rank);
    }

    void put_weight(const Slots& slots, Gradients& gradients) {
      products.run();
      put(slots.weight, gradients.weight.to(seen()));
      gradients.weight.reset();
    }

    void through_a(const Slots& slots, const at::Tensor& g_low_rank) {
      const at::Tensor &row_keys = saved[0], a = parameter(slots.a).to(type);
      const bool needs_x = ctx->needs_input_grad(0);
      if (slots.dropout > 0 && needs(slots.a) && needs_x && target_of(gx.device()) == c10::kCPU) {
        const at::Tensor dropped =
            dropout_with_gradient(input(), times(g_low_rank, a), gx, row_keys, slots.key, slots.dropout);
        return put(slots.a, product(g_low_rank.t(), dropped));
      }
      if (needs(slots.a)) put(slots.a, product(g_low_rank.t(), adapter_input(input(), row_keys, slots)));
      if (!needs_x) return;
      if (slots.dropout > 0) {
        gx.add_(adapter_input(times(g_low_rank, a), row_keys, slots));
      } else {
        times_into(gx, g_low_rank, a);
      }
    }

    at::ScalarType type = layout.type;
    ProductGroup products{};
  };
};

// Outside of training on a GPU: the results of frozen weights that lie below each other, as columns of one
// product. Nothing if they do not, or have adapters.
std::vector<at::Tensor> answers_together(const at::Tensor& x, const std::vector<Projection>& projections) {
  if (at::GradMode::is_enabled() || !runs_on_gpu(x.device()) || projections.size() < 2) return {};
  std::vector<at::Tensor> weights, out;
  for (const Projection& p : projections) {
    if (p.a.defined() || !is_plain(p.weight, x.scalar_type())) return {};
    weights.push_back(p.weight.tensor());
  }
  const at::Tensor together = joined(weights, /*dim=*/0);
  if (!together.defined()) return {};
  const at::Tensor all = x.mm(together.t());
  int64_t first = 0;
  for (const Projection& p : projections) {
    const int64_t outputs = p.weight.size(0);
    out.push_back(all.narrow(1, first, outputs));
    if (p.bias) out.back().add_(*p.bias);
    first += outputs;
  }
  return out;
}

}  // namespace

bool adds_to_gradient(const at::Tensor& leaf, at::ScalarType type) {
  if (!runs_on_gpu(leaf.device()) || !leaf.is_leaf() || !leaf.grad().defined()) return false;
  return leaf.grad().scalar_type() == type && leaf.grad().is_contiguous() &&
         torch::autograd::impl::post_acc_grad_hooks(leaf) == nullptr;
}

// x [rows, in] -> [rows, out]
static std::vector<at::Tensor> group_of_rows(const LayerInput& in, const at::Tensor& row_keys,
                                             const std::vector<Projection>& projections,
                                             at::ScalarType type) {
  const at::Tensor& x = in.x;
  if (std::vector<at::Tensor> out = answers_together(x, projections); !out.empty()) return out;
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
  layout->seen = x.scalar_type();
  layout->input = RestoredInput(in, projections);
  layout->parameters = static_cast<int>(parameters.size());
  return LinearGroup::apply(x, row_keys, at::TensorList(parameters), layout);
}

std::vector<at::Tensor> linear_group(const LayerInput& in, const at::Tensor& row_keys,
                                     const std::vector<Projection>& projections, at::ScalarType type,
                                     const std::shared_ptr<AdapterPacks>& packs) {
  if (can_pack(in.x, projections, type)) return packed_linear_group(in, row_keys, projections, packs);
  LayerInput rows = in;
  rows.x = in.x.reshape({-1, in.x.size(-1)});
  std::vector<at::Tensor> out = group_of_rows(rows, row_keys, projections, type);
  if (in.x.dim() == 2) return out;
  std::vector<int64_t> shape = in.x.sizes().vec();
  for (at::Tensor& y : out) {
    shape.back() = y.size(1);
    y = y.view(shape);
  }
  return out;
}

}  // namespace trainer
