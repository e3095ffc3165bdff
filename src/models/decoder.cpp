#include "models/decoder.h"

#include <cmath>

#include <ATen/ATen.h>

#include "trainer/nn/checkpoint.h"
#include "trainer/nn/dropout.h"

namespace trainer {

DecoderAttention::DecoderAttention(const DecoderConfig& c, size_t layer)
    : q_proj(c.hidden_size, c.num_heads * c.head_dim, c.qkv_bias),
      k_proj(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias),
      v_proj(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias),
      o_proj(c.num_heads * c.head_dim, c.hidden_size, c.output_bias),
      head_dim_(c.head_dim),
      window_(c.sliding[layer] ? c.sliding_window : 0),
      rotated_(c.rotated[layer]) {
  add("q_proj", q_proj);
  add("k_proj", k_proj);
  add("v_proj", v_proj);
  add("o_proj", o_proj);
  if (c.qk_norm) {
    add("q_norm", q_norm.emplace(c.head_dim, c.rms_norm_eps));
    add("k_norm", k_norm.emplace(c.head_dim, c.rms_norm_eps));
  }
}

// x [B, S, heads * K] -> [B, heads, S, K]
at::Tensor DecoderAttention::rotated(const at::Tensor& x, const std::optional<RmsNorm>& norm,
                                     const DecoderPass& pass) const {
  const at::Tensor heads = x.unflatten(2, {-1, head_dim_});
  const at::Tensor normalised = (norm ? norm->forward(heads) : heads).transpose(1, 2);
  return rotated_ ? Rotary::apply(normalised, pass.rotary) : normalised;
}

at::Tensor DecoderAttention::forward(const at::Tensor& x, const DecoderPass& pass, KvCache* cache) const {
  AttentionInputs in;
  const std::vector<at::Tensor> qkv =
      Linear::forward_together({&q_proj, &k_proj, &v_proj}, x, pass.rows, *pass.context);
  in.q = rotated(qkv[0], q_norm, pass);
  in.k = rotated(qkv[1], k_norm, pass);
  in.v = qkv[2].unflatten(2, {-1, head_dim_}).transpose(1, 2);
  in.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  in.mask = window_ > 0 ? pass.window_mask : pass.mask;
  in.causal = pass.positions == nullptr && !in.mask.defined();
  if (pass.positions != nullptr) {
    std::tie(in.k, in.v) = cache->append(in.k, in.v, *pass.positions);
  } else if (cache != nullptr) {
    cache->fill(in.k, in.v);
  }
  const at::Tensor out = pass.packed ? packed_attention(in, *pass.packed, window_) : attention(in);
  return o_proj.forward(out.transpose(1, 2).flatten(2), pass.rows, *pass.context);
}

DecoderMlp::DecoderMlp(const DecoderConfig& c)
    : gate_proj(c.hidden_size, c.intermediate_size, c.mlp_bias),
      up_proj(c.hidden_size, c.intermediate_size, c.mlp_bias),
      down_proj(c.intermediate_size, c.hidden_size, c.mlp_bias),
      activation_(c.activation) {
  add("gate_proj", gate_proj);
  add("up_proj", up_proj);
  add("down_proj", down_proj);
}

at::Tensor DecoderMlp::forward(const at::Tensor& x, const DecoderPass& pass) const {
  const std::vector<at::Tensor> gate_up =
      Linear::forward_together({&gate_proj, &up_proj}, x, pass.rows, *pass.context);
  return down_proj.forward(gated_activation(activation_, gate_up[0], gate_up[1]), pass.rows, *pass.context);
}

DecoderLayer::DecoderLayer(const DecoderConfig& c, size_t layer)
    : self_attn(c, layer),
      mlp(c),
      input_layernorm(c.hidden_size, c.rms_norm_eps),
      post_attention_layernorm(c.hidden_size, c.rms_norm_eps) {
  add("self_attn", self_attn);
  add("mlp", mlp);
  add("input_layernorm", input_layernorm);
  add("post_attention_layernorm", post_attention_layernorm);
}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const DecoderPass& pass, KvCache* cache) const {
  const at::Tensor h = x + self_attn.forward(input_layernorm.forward(x), pass, cache);
  return h + mlp.forward(post_attention_layernorm.forward(h), pass);
}

DecoderBody::DecoderBody(const DecoderConfig& c)
    : embed_tokens(c.vocab_size, c.hidden_size, c.padding_idx), norm(c.hidden_size, c.rms_norm_eps) {
  add("embed_tokens", embed_tokens);
  for (size_t i = 0; i < static_cast<size_t>(c.num_layers); i++) {
    layers.push_back(std::make_unique<DecoderLayer>(c, i));
    add("layers." + std::to_string(i), *layers.back());
  }
  add("norm", norm);
}

Decoder::Decoder(const nlohmann::json& config, const DecoderConfig& facts, bool separate_head)
    : Model(config), c_(facts), body_(c_), rotary_(c_.rope), head_(body_.embed_tokens.weight, {}) {
  add("model", body_);
  if (separate_head || !c_.tied) add("lm_head", head_.own_weight());
  assign_names();
}

DecoderPass Decoder::start(const ForwardContext& context, const at::Tensor& slots, const at::Tensor& h,
                           const at::Tensor& positions, const std::vector<int64_t>& lengths) const {
  const int64_t seq = h.size(1);
  DecoderPass pass{&context, row_keys(slots, seq), rotary_.tables(positions, lengths, h.options())};
  if (c_.sliding_window > 0 && seq > c_.sliding_window) {
    pass.window_mask = sliding_window_mask(seq, seq, c_.sliding_window, h.options().requires_grad(false));
  }
  return pass;
}

// Rows are padded on the right, so a causal mask alone keeps padding out of what counts; or packed.
DecoderPass Decoder::start(const ForwardContext& context, const MicroBatch& batch,
                           const at::Tensor& h) const {
  if (!batch.packed) {
    const at::Tensor positions = at::arange(h.size(1), batch.slots.options());
    return start(context, batch.slots, h, positions, batch.lengths);
  }
  const PackedRow& row = *batch.packed;
  DecoderPass pass{&context, row_keys(row.slots, row.positions),
                   rotary_.tables(row.positions, batch.lengths, h.options())};
  pass.packed = {row.starts, batch.lengths};
  return pass;
}

at::Tensor Decoder::supervised_states(const MicroBatch& batch, const ForwardContext& context) const {
  at::Tensor h = embed(batch.input_ids);
  DecoderPass pass = start(context, batch, h);
  for (size_t i = 0; i < body_.layers.size(); i++) {
    const DecoderLayer& layer = *body_.layers[i];
    enter(layer);
    if (static_cast<int64_t>(i) < context.recompute_blocks) {
      h = checkpoint(h, std::nullopt, context.anchor,
                     [&layer, pass, context](const at::Tensor& x, const auto&) mutable {
                       pass.context = &context;
                       return layer.forward(x, pass);
                     });
    } else {
      h = layer.forward(h, pass);
    }
  }
  h = body_.norm.forward(h.flatten(0, 1).index_select(0, batch.supervised_rows));
  return head_.states(h, pass.rows.flatten().index_select(0, batch.supervised_rows), context);
}

void Decoder::untie_head() {
  if (!head_.tied()) return;
  add("lm_head", head_.own_weight());
  assign_names();
}

std::vector<std::string> Decoder::tied_names() const {
  if (!head_.tied()) return {"model.embed_tokens.weight"};
  return {"model.embed_tokens.weight", "lm_head.weight"};
}

std::unique_ptr<Model> make_decoder(const nlohmann::json& config, const DecoderConfig& facts,
                                    bool separate_head) {
  return std::make_unique<Decoder>(config, facts, separate_head);
}

}  // namespace trainer
