#include "nn/packed_linear_group.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/restored_input.h"
#include "ops/dropout.h"
#include "ops/matmul.h"
#include "ops/packed_adapters.h"
#include "ops/plain_view.h"
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
  std::shared_ptr<AdapterPacks> packs;

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

std::vector<Weight> weights_of(const Settings& settings, const variable_list& parameters) {
  std::vector<Weight> all;
  for (size_t i = 0; i < settings.layers.size(); i++) all.push_back(weight_of(settings, parameters, i));
  return all;
}

std::pair<variable_list, variable_list> adapters_of(const variable_list& parameters, size_t layers) {
  variable_list a, b;
  for (size_t i = 0; i < layers; i++) {
    a.push_back(parameters[i * kEach + kA]);
    b.push_back(parameters[i * kEach + kB]);
  }
  return {a, b};
}

PackedAdapters pack(const variable_list& parameters, size_t layers, const at::Tensor& x,
                    AdapterPacks* packs) {
  const auto [a, b] = adapters_of(parameters, layers);
  return packs != nullptr ? packs->get({a, b}, x) : pack_adapters(a, b, x.scalar_type());
}

// Returns the weights of all layers as one matrix [all outputs, in]; undefined if they do not lie so.
at::Tensor all_weights(const Settings& settings, const variable_list& parameters, at::ScalarType type) {
  variable_list weights;
  for (size_t i = 0; i < settings.layers.size(); i++) {
    const Weight weight = weight_of(settings, parameters, i);
    if (!weight.is_tensor() || weight.scalar_type() != type) return {};
    weights.push_back(weight.tensor());
  }
  return joined(weights, /*dim=*/0);
}

// out = x y * scale
void product_into(at::Tensor out, const at::Tensor& x, const at::Tensor& y, double scale) {
  at::addmm_out(out, out, x, y, /*beta=*/0, /*alpha=*/scale);
}

struct PackedLinearGroup : torch::autograd::Function<PackedLinearGroup> {
  // Takes x [..., in] and gives [..., out] as they are, so that no view around it is autograd's business.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& row_keys,
                               at::TensorList parameters, const c10::intrusive_ptr<Settings>& settings) {
    const at::AutoDispatchBelowADInplaceOrView plain;  // the outputs are not views to autograd
    const at::Tensor x = as_matrix(input);
    const variable_list list = parameters.vec();
    const size_t layers = settings->layers.size();
    const PackedAdapters packed = pack(list, layers, x, settings->packs.get());
    const at::Tensor low = at::empty({x.size(0), packed.ranks()}, x.options());  // scale * A x
    if (settings->drops()) {
      for (size_t i = 0; i < layers; i++) {
        if (!packed.has(i)) continue;
        product_into(packed.ranks_of(low, i), settings->input(i, x, row_keys),
                     plain_transposed(packed.a_of(i)), settings->scale);
      }
    } else {
      product_into(low, x, plain_transposed(packed.a), settings->scale);
    }
    const at::Tensor all = products(low, x, packed, *settings, list);
    variable_list out;
    for (size_t i = 0; i < layers; i++) out.push_back(packed.outputs_of(all, i));
    for (size_t i = 0; i < layers; i++) {
      const int64_t bias = settings->layers[i].bias;
      if (bias >= 0) out[i].add_(list[static_cast<size_t>(bias)]);
    }
    for (at::Tensor& y : out) y = as_rows_of(y, input.sizes());
    const bool kept = AdapterPacks::are_small(packed, x);
    variable_list saved{row_keys, low, kept ? packed.a : at::Tensor(), kept ? packed.b : at::Tensor()};
    saved.insert(saved.end(), list.begin(), list.end());
    settings->x.save(input, saved);
    ctx->save_for_backward(saved);
    ctx->saved_data["settings"] = c10::IValue::make_capsule(settings);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list& given) {
    std::vector<int64_t> shape;
    variable_list grads;
    for (const at::Tensor& grad : given) {
      if (grad.defined()) shape = grad.sizes().vec();
      grads.push_back(grad.defined() ? as_matrix(grad) : grad);
    }
    given.clear();
    const variable_list saved = ctx->get_saved_variables();
    const auto settings =
        c10::static_intrusive_pointer_cast<Settings>(ctx->saved_data["settings"].toCapsule());
    const auto first = saved.begin() + kSavedFirst;
    Pass pass{ctx, *settings, saved, saved[0], saved[1], {first, first + settings->parameters}};
    variable_list out = pass.run(grads, packed_before(saved, pass.parameters, grads.size()));
    if (out[0].defined()) out[0] = as_rows_of(out[0], shape);
    return out;
  }

 private:
  // Returns low B^T + x W^T, side by side for all layers.
  static at::Tensor products(const at::Tensor& low, const at::Tensor& x, const PackedAdapters& packed,
                             const Settings& settings, const variable_list& parameters) {
    const std::vector<Weight> weights = weights_of(settings, parameters);
    const at::Tensor b = plain_transposed(packed.b);
    // A product of codes cannot be added to a sum that is there, as B's can.
    if (weights.size() == 1) {
      if (at::Tensor all = times_codes_transposed(x, weights[0]); all.defined()) return all.addmm_(low, b);
    }
    // The large products add to B's: they hide the reading, which would take as long as B's product itself.
    at::Tensor all = low.mm(b);
    const at::Tensor together = all_weights(settings, parameters, x.scalar_type());
    if (together.defined()) return all.addmm_(x, plain_transposed(together));
    variable_list parts;
    for (size_t i = 0; i < weights.size(); i++) parts.push_back(packed.outputs_of(all, i));
    add_times_transposed(parts, x, weights);
    return all;
  }

  static constexpr int kSavedFirst = 4;  // index of the first parameter in the saved tensors

  static PackedAdapters packed_before(const variable_list& saved, const variable_list& parameters,
                                      size_t layers) {
    const auto [a, b] = adapters_of(parameters, layers);
    if (!saved[2].defined()) return pack_adapters(a, b, saved[1].scalar_type());
    return packed_as(a, b, saved[2], saved[3]);
  }

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

    variable_list run(const variable_list& grads, const PackedAdapters& packed) {
      const bool all = std::ranges::all_of(grads, [](const at::Tensor& grad) { return grad.defined(); });
      const at::Tensor together = all ? joined(grads, /*dim=*/1) : at::Tensor();
      // scale * gy B
      const at::Tensor g_low = all ? at::empty_like(low) : at::zeros_like(low);
      if (together.defined()) product_into(g_low, together, packed.b, settings.scale);
      for (size_t i = 0; i < grads.size(); i++) {
        if (grads[i].defined() && packed.has(i)) through_b(i, grads[i], packed, g_low, together.defined());
      }
      const bool by_codes = through_codes(together);
      if (settings.drops()) {
        through_a_with_dropout(packed, g_low, grads);
      } else {
        through_a(packed, g_low);
      }
      if (!by_codes) through_weights(grads, together);
      add_to_sums();
      if (ctx->needs_input_grad(0)) out[0] = gx;
      return std::move(out);
    }

    // The gradients of all A and B to the sums of earlier micro-batches, in one launch.
    void add_to_sums() {
      variable_list sums, gradients;
      for (size_t i = 0; i < kEach * settings.layers.size(); i++) {
        const at::Tensor& gradient = out[i + 2];
        if (!gradient.defined()) continue;
        if (!adds_to_gradient(parameters[i], at::kFloat) || !gradient.is_contiguous()) return;
        sums.push_back(parameters[i].grad());
        gradients.push_back(gradient);
      }
      add_together(sums, gradients);
      for (size_t i = 0; i < kEach * settings.layers.size(); i++) out[i + 2] = at::Tensor();
    }

    // One product of codes, where that is how weights are multiplied. It comes first, as in products().
    bool through_codes(const at::Tensor& together) {
      if (together.defined() && ctx->needs_input_grad(0))
        gx = times_codes(together, weights_of(settings, parameters));
      return gx.defined();
    }

    void through_weights(const variable_list& grads, const at::Tensor& together) {
      if (!ctx->needs_input_grad(0)) return;
      if (together.defined()) {
        const at::Tensor weights = all_weights(settings, parameters, together.scalar_type());
        if (weights.defined()) return times_into(gx, together, weights);
      }
      for (size_t i = 0; i < grads.size(); i++) {
        if (grads[i].defined())
          times_into(gx, grads[i], weight_of(settings, parameters, i), grads[i].scalar_type());
      }
    }

    void through_b(size_t i, const at::Tensor& gy, const PackedAdapters& packed, const at::Tensor& g_low,
                   bool is_there) {
      if (!is_there) product_into(packed.ranks_of(g_low, i), gy, packed.b_of(i), settings.scale);
      if (needs(i * kEach + kB))
        put(i * kEach + kB, product_in_fp32(plain_transposed(gy), packed.ranks_of(low, i)));
    }

    // Returns x if the gradient of an A needs it. It lives no longer than these gradients take.
    at::Tensor input() const {
      for (size_t i = 0; i < settings.layers.size(); i++)
        if (needs(i * kEach + kA)) return settings.x.restore(saved);
      return {};
    }

    void through_a(const PackedAdapters& packed, const at::Tensor& g_low) {
      if (const at::Tensor x = input(); x.defined()) {
        const at::Tensor ga = product_in_fp32(plain_transposed(g_low), x);
        for (size_t i = 0; i < settings.layers.size(); i++) {
          if (needs(i * kEach + kA))
            put(i * kEach + kA, plain_rows(ga, packed.first_rank[i], packed.rank(i)));
        }
      }
      if (ctx->needs_input_grad(0)) times_into(gx, g_low, packed.a);
    }

    // gx begins here or before, so that not all of x's size exist at once: gx, a product and what dropout
    // leaves of it.
    void through_a_with_dropout(const PackedAdapters& packed, const at::Tensor& g_low,
                                const variable_list& grads) {
      const at::Tensor x = input();
      for (size_t i = 0; i < grads.size(); i++) {
        if (!grads[i].defined() || !packed.has(i)) continue;
        const at::Tensor g = packed.ranks_of(g_low, i);
        if (needs(i * kEach + kA))
          put(i * kEach + kA, product_in_fp32(plain_transposed(g), settings.input(i, x, row_keys)));
        if (!ctx->needs_input_grad(0)) continue;
        const at::Tensor part = settings.input(i, g.mm(packed.a_of(i)), row_keys);
        gx = gx.defined() ? gx.add_(part) : part;
      }
    }
  };
};

}  // namespace

at::Tensor joined(const std::vector<at::Tensor>& matrices, int64_t dim) {
  const at::Tensor& first = matrices.front();
  if (!first.defined()) return {};
  std::vector<int64_t> shape = first.sizes().vec();
  shape[static_cast<size_t>(dim)] = 0;
  int64_t next = first.storage_offset();
  for (const at::Tensor& x : matrices) {
    const bool fits = x.defined() &&
                      x.storage().unsafeGetStorageImpl() == first.storage().unsafeGetStorageImpl() &&
                      x.scalar_type() == first.scalar_type() && x.strides() == first.strides() &&
                      x.size(1 - dim) == first.size(1 - dim) && x.storage_offset() == next;
    if (!fits) return {};
    next += x.size(dim) * x.stride(dim);
    shape[static_cast<size_t>(dim)] += x.size(dim);
  }
  // Rows follow each other without overlap.
  if (first.stride(1) != 1 || shape[1] > first.stride(0)) return {};
  return plain_view(first, shape, first.strides(), first.storage_offset());
}

bool can_pack(const at::Tensor& x, const std::vector<Projection>& projections, at::ScalarType type) {
  if (x.scalar_type() != type || projections.size() > kMostPacked) return false;
  const auto adapted = std::ranges::find_if(projections, [](const Projection& p) { return p.a.defined(); });
  if (adapted == projections.end()) return false;
  const auto fits = [&](const Projection& p) {
    const bool frozen =
        !p.weight.requires_grad() && (!p.weight.is_tensor() || p.weight.scalar_type() == type);
    const bool plain = !p.a.defined() || (p.a.scalar_type() == at::kFloat &&
                                          p.b.scalar_type() == at::kFloat && p.scale == adapted->scale);
    return frozen && plain && (!p.bias || !p.bias->requires_grad());
  };
  return std::ranges::all_of(projections, fits) && packs_adapters(x.device(), type);
}

// A layer without an adapter has one of rank 0.
static std::pair<at::Tensor, at::Tensor> adapter_of(const Projection& p, const at::Tensor& x) {
  if (p.a.defined()) return {p.a, p.b};
  const at::TensorOptions options = x.options().dtype(at::kFloat).requires_grad(false);
  return {at::empty({0, x.size(-1)}, options), at::empty({p.weight.size(0), 0}, options)};
}

std::vector<at::Tensor> packed_linear_group(const LayerInput& x, const at::Tensor& row_keys,
                                            const std::vector<Projection>& projections,
                                            const std::shared_ptr<AdapterPacks>& packs) {
  variable_list parameters;
  auto settings = c10::make_intrusive<Settings>();
  const auto adapted = std::ranges::find_if(projections, [](const Projection& p) { return p.a.defined(); });
  settings->scale = adapted->scale;
  for (const Projection& p : projections) {
    const bool is_tensor = p.weight.is_tensor();
    settings->layers.push_back(
        {.source = is_tensor ? Weight() : p.weight, .key = p.key, .dropout = p.dropout});
    const auto [a, b] = adapter_of(p, x.x);
    parameters.insert(parameters.end(), {p.weight.tensors()[0], a, b});
  }
  for (size_t i = 0; i < projections.size(); i++) {
    if (!projections[i].bias) continue;
    settings->layers[i].bias = static_cast<int64_t>(parameters.size());
    parameters.push_back(*projections[i].bias);
  }
  settings->parameters = std::ssize(parameters);
  settings->x = RestoredInput(x, projections);
  settings->packs = packs;
  return PackedLinearGroup::apply(x.x.contiguous(), row_keys, at::TensorList(parameters), settings);
}

}  // namespace trainer
