#include "models/layer_extras.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "nn/checkpoint.h"
#include "nn/made_inputs.h"

namespace trainer {

PerLayerInputs::PerLayerInputs(Module& body, const DecoderConfig& c)
    : size_(c.per_layer_size),
      projection_scale_(1.0 / std::sqrt(static_cast<double>(c.hidden_size))),
      table_(c.per_layer_vocab, c.num_layers * c.per_layer_size, c.padding_idx),
      projection_(c.hidden_size, c.num_layers * c.per_layer_size, false),
      norm_(c.per_layer_size, c.norm) {
  body.add("embed_tokens_per_layer", table_);
  body.add("per_layer_model_projection", projection_);
  body.add("per_layer_projection_norm", norm_);
}

std::vector<at::Tensor> PerLayerInputs::forward(const at::Tensor& ids, const at::Tensor& embedded,
                                                const DecoderPass& pass) const {
  const auto by_layer = [&](const at::Tensor& x) { return x.unflatten(2, {-1, size_}); };
  const at::Tensor projected = projection_.forward(embedded, pass.rows, *pass.context) * projection_scale_;
  const at::ScalarType type = embedded.scalar_type();
  const at::Tensor looked_up =
      table_.forward(ids, type) * rounded_factor(std::sqrt(static_cast<float>(size_)), type);
  const at::Tensor both = (norm_.forward(by_layer(projected)) + by_layer(looked_up)) * std::sqrt(0.5);
  return both.unbind(2);
}

PerLayerGate::PerLayerGate(Module& layer, const DecoderConfig& c)
    : activation_(c.activation),
      gate_(c.hidden_size, c.per_layer_size, false),
      projection_(c.per_layer_size, c.hidden_size, false),
      norm_(c.hidden_size, c.norm) {
  layer.add("per_layer_input_gate", gate_);
  layer.add("per_layer_projection", projection_);
  layer.add("post_per_layer_input_norm", norm_);
}

at::Tensor PerLayerGate::forward(const at::Tensor& h, const DecoderPass& pass) const {
  const at::Tensor gate = gate_.forward(h, pass.rows, *pass.context);
  const LayerInput gated = gated_input(activation_, gate, pass.layer_input.contiguous(), *pass.context);
  return norm_.forward(projection_.forward(gated, pass.rows, *pass.context));
}

LayerExtras::LayerExtras(const DecoderConfig& c, const DecoderBody& body, const at::Tensor& ids,
                         const at::Tensor& embedded, const DecoderPass& pass)
    : c_(c) {
  if (body.per_layer) inputs_ = body.per_layer->forward(ids, embedded, pass);
}

void LayerExtras::give(DecoderPass& pass, size_t layer) {
  if (!inputs_.empty()) pass.layer_input = inputs_[layer];
  if (c_.layers_sharing_keys == 0) return;
  SharedKeys& keys = shared_[c_.sliding[layer] ? 1 : 0];
  pass.stores = c_.stores_keys(layer) ? &keys : nullptr;
  pass.shared = c_.shares_keys(layer) ? keys : SharedKeys{};
}

at::Tensor recomputed_with_extras(const DecoderLayer& layer, const at::Tensor& h, const DecoderPass& pass,
                                  const EnterBlock& enter) {
  DecoderPass inner = pass;
  inner.layer_input.reset();
  inner.shared = {};
  const auto run = [&layer, inner, stores = pass.stores != nullptr,
                    context = pass.context->in_recomputed_block()](
                       const at::Tensor& x, const std::vector<at::Tensor>& others) mutable {
    SharedKeys made;
    inner.context = &context;
    inner.layer_input = others[0];
    inner.shared = {others[1], others[2]};
    inner.stores = stores ? &made : nullptr;
    std::vector<at::Tensor> out{layer.forward(x, inner)};
    if (stores) out.insert(out.end(), {made.k, made.v});
    inner.layer_input.reset();
    inner.shared = {};
    return out;
  };
  const std::vector<at::Tensor> out =
      checkpoint_wide(h, {pass.layer_input, pass.shared.k, pass.shared.v}, pass.context->anchor,
                      {run, enter, pass.context->kept_inputs});
  if (pass.stores != nullptr) *pass.stores = {out[1], out[2]};
  return out[0];
}

}  // namespace trainer
