#include "nn/packed_linear_group.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/restored_input.h"
#include "ops/dropout.h"
#include "ops/matmul.h"
#include "ops/packed_adapters.h"
#include "weights/weight_products.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Settings : torch::CustomClassHolder {
  struct Layer {
    Weight source;  // the weight, if it is not a tensor
    uint64_t key = 0;
    double dropout = 0.0;
    int64_t bias = -1;  // its index among the parameters
  };
  std::vector<Layer> layers;
  double scale = 1.0;
  std::ptrdiff_t parameters = 0;
  RestoredInput x;

  bool drops() const {
    return std::ranges::any_of(layers, [](const Layer& layer) { return layer.dropout > 0; });
  }
  at::Tensor input(size_t i, const at::Tensor& x, const at::Tensor& row_keys) const {
    const Layer& layer = layers[i];
    return layer.dropout > 0 ? dropout_apply(x, row_keys, layer.key, layer.dropout) : x;
  }
};

// The tensors of layer i in the Function's list of parameters; biases follow behind all layers. A weight that
// is not a tensor is in the settings, and the list has one of the tensors that hold it.
constexpr size_t kWeight = 0, kA = 1, kB = 2, kEach = 3;

Weight weight_of(const Settings& settings, const variable_list& parameters, size_t i) {
  const Weight& source = settings.layers[i].source;
  return source.defined() ? source : Weight(parameters[i * kEach + kWeight]);
}

PackedAdapters pack(const variable_list& parameters, size_t layers, at::ScalarType type) {
  std::vector<at::Tensor> a, b;
  for (size_t i = 0; i < layers; i++) {
    a.push_back(parameters[i * kEach + kA]);
    b.push_back(parameters[i * kEach + kB]);
  }
  return pack_adapters(a, b, type);
}

// out = x y * scale
void product_into(at::Tensor out, const at::Tensor& x, const at::Tensor& y, double scale) {
  at::addmm_out(out, out, x, y, /*beta=*/0, /*alpha=*/scale);
}

struct PackedLinearGroup : torch::autograd::Function<PackedLinearGroup> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& row_keys,
                               at::TensorList parameters, const c10::intrusive_ptr<Settings>& settings) {
    const at::AutoDispatchBelowADInplaceOrView plain;  // the outputs are not views to autograd
    const variable_list list = parameters.vec();
    const size_t layers = settings->layers.size();
    const PackedAdapters packed = pack(list, layers, x.scalar_type());
    const at::Tensor low = at::empty({x.size(0), packed.ranks()}, x.options());  // scale * A x
    if (settings->drops()) {
      for (size_t i = 0; i < layers; i++) {
        product_into(packed.ranks_of(low, i), settings->input(i, x, row_keys), packed.a_of(i).t(),
                     settings->scale);
      }
    } else {
      product_into(low, x, packed.a.t(), settings->scale);
    }
    // The large products add to B's: they hide the reading, which would take as long as B's product itself.
    const at::Tensor all = low.mm(packed.b.t());
    variable_list out;
    for (size_t i = 0; i < layers; i++) {
      const at::Tensor y = out.emplace_back(packed.outputs_of(all, i));
      add_times_transposed(y, x, weight_of(*settings, list, i));
    }
    for (size_t i = 0; i < layers; i++) {
      const int64_t bias = settings->layers[i].bias;
      if (bias >= 0) out[i].add_(list[static_cast<size_t>(bias)]);
    }
    variable_list saved{row_keys, low};
    saved.insert(saved.end(), list.begin(), list.end());
    settings->x.save(x, saved);
    ctx->save_for_backward(saved);
    ctx->saved_data["settings"] = c10::IValue::make_capsule(settings);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto settings =
        c10::static_intrusive_pointer_cast<Settings>(ctx->saved_data["settings"].toCapsule());
    const auto first = saved.begin() + 2;
    Pass pass{ctx, *settings, saved, saved[0], saved[1], {first, first + settings->parameters}};
    return pass.run(grads);
  }

 private:
  struct Pass {
    AutogradContext* ctx;
    const Settings& settings;
    const variable_list& saved;
    at::Tensor row_keys, low;
    variable_list parameters;
    variable_list out = variable_list(parameters.size() + 3);  // gradients of all inputs
    at::Tensor gx{};

    bool needs(size_t parameter) const { return ctx->needs_input_grad(parameter + 2); }
    void put(size_t parameter, const at::Tensor& gradient) { out[parameter + 2] = gradient; }

    variable_list run(const variable_list& grads) {
      const PackedAdapters packed = pack(parameters, grads.size(), low.scalar_type());
      const bool all = std::ranges::all_of(grads, [](const at::Tensor& grad) { return grad.defined(); });
      // scale * gy B
      const at::Tensor g_low = all ? at::empty_like(low) : at::zeros_like(low);
      for (size_t i = 0; i < grads.size(); i++) {
        if (grads[i].defined()) through_b(i, grads[i], packed, g_low);
      }
      if (settings.drops()) {
        through_a_with_dropout(packed, g_low, grads);
      } else {
        through_a(packed, g_low);
      }
      through_weights(grads);
      if (ctx->needs_input_grad(0)) out[0] = gx;
      return std::move(out);
    }

    void through_weights(const variable_list& grads) {
      if (!ctx->needs_input_grad(0)) return;
      for (size_t i = 0; i < grads.size(); i++) {
        if (grads[i].defined())
          times_into(gx, grads[i], weight_of(settings, parameters, i), grads[i].scalar_type());
      }
    }

    void through_b(size_t i, const at::Tensor& gy, const PackedAdapters& packed, const at::Tensor& g_low) {
      product_into(packed.ranks_of(g_low, i), gy, packed.b_of(i), settings.scale);
      if (needs(i * kEach + kB)) put(i * kEach + kB, product_in_fp32(gy.t(), packed.ranks_of(low, i)));
    }

    // Returns x if the gradient of an A needs it. It lives no longer than these gradients take.
    at::Tensor input() const {
      for (size_t i = 0; i < settings.layers.size(); i++)
        if (needs(i * kEach + kA)) return settings.x.restore(saved);
      return {};
    }

    void through_a(const PackedAdapters& packed, const at::Tensor& g_low) {
      if (const at::Tensor x = input(); x.defined()) {
        const at::Tensor ga = product_in_fp32(g_low.t(), x);
        for (size_t i = 0; i < settings.layers.size(); i++) {
          if (needs(i * kEach + kA))
            put(i * kEach + kA, ga.narrow(0, packed.first_rank[i], packed.a_of(i).size(0)));
        }
      }
      if (ctx->needs_input_grad(0)) times_into(gx, g_low, packed.a);
    }

    // gx begins here, so that not all of x's size exist at once: gx, a product and what dropout leaves of it.
    void through_a_with_dropout(const PackedAdapters& packed, const at::Tensor& g_low,
                                const variable_list& grads) {
      const at::Tensor x = input();
      for (size_t i = 0; i < grads.size(); i++) {
        if (!grads[i].defined()) continue;
        const at::Tensor g = packed.ranks_of(g_low, i);
        if (needs(i * kEach + kA))
          put(i * kEach + kA, product_in_fp32(g.t(), settings.input(i, x, row_keys)));
        if (!ctx->needs_input_grad(0)) continue;
        const at::Tensor part = settings.input(i, g.mm(packed.a_of(i)), row_keys);
        gx = gx.defined() ? gx.add_(part) : part;
      }
    }
  };
};

}  // namespace

bool can_pack(const at::Tensor& x, const std::vector<Projection>& projections, at::ScalarType type) {
  if (x.scalar_type() != type || projections.size() > kMostPacked) return false;
  const auto fits = [&](const Projection& p) {
    const bool frozen =
        !p.weight.requires_grad() && (!p.weight.is_tensor() || p.weight.scalar_type() == type);
    return frozen && p.a.defined() && p.a.scalar_type() == at::kFloat && p.b.scalar_type() == at::kFloat &&
           p.scale == projections[0].scale && (!p.bias || !p.bias->requires_grad());
  };
  return std::ranges::all_of(projections, fits) && packs_adapters(x.device(), type);
}

std::vector<at::Tensor> packed_linear_group(const LayerInput& x, const at::Tensor& row_keys,
                                            const std::vector<Projection>& projections) {
  variable_list parameters;
  auto settings = c10::make_intrusive<Settings>();
  settings->scale = projections[0].scale;
  for (const Projection& p : projections) {
    const bool is_tensor = p.weight.is_tensor();
    settings->layers.push_back(
        {.source = is_tensor ? Weight() : p.weight, .key = p.key, .dropout = p.dropout});
    parameters.insert(parameters.end(), {p.weight.tensors()[0], p.a, p.b});
  }
  for (size_t i = 0; i < projections.size(); i++) {
    if (!projections[i].bias) continue;
    settings->layers[i].bias = static_cast<int64_t>(parameters.size());
    parameters.push_back(*projections[i].bias);
  }
  settings->parameters = std::ssize(parameters);
  settings->x = RestoredInput(x, projections);
  return PackedLinearGroup::apply(x.x.contiguous(), row_keys, at::TensorList(parameters), settings);
}

}  // namespace trainer
