// The layers of T5Gemma and T5Gemma 2. Tested against transformers, models/{t5gemma,t5gemma2}/modeling_*.py.
#include <tuple>

#include <ATen/ATen.h>

#include "base/random.h"
#include "models/t5gemma.h"
#include "nn/capped_attention.h"
#include "nn/made_inputs.h"
#include "ops/dropout.h"

namespace trainer {

T5GemmaAttention::T5GemmaAttention(const DecoderConfig& c, size_t layer, AttendsTo to, int64_t source_size)
    : q_proj(c.hidden_size, c.num_heads * c.head_dim, c.qkv_bias),
      k_proj(source_size, c.num_kv_heads * c.head_dim, c.qkv_bias),
      v_proj(source_size, c.num_kv_heads * c.head_dim, c.qkv_bias),
      o_proj(c.num_heads * c.head_dim, c.hidden_size, c.output_bias),
      to_(to),
      head_dim_(c.head_dim),
      window_(c.sliding[layer] ? c.sliding_window : 0),
      scale_(c.attention_scale),
      soft_cap_(c.attention_soft_cap) {
  add("q_proj", q_proj);
  add("k_proj", k_proj);
  add("v_proj", v_proj);
  add("o_proj", o_proj);
  if (!c.qk_norm) return;
  add("q_norm", q_norm_.emplace(c.head_dim, c.norm));
  add("k_norm", k_norm_.emplace(c.head_dim, c.norm));
}

std::pair<at::Tensor, at::Tensor> T5GemmaAttention::source_keys(const at::Tensor& source,
                                                                const at::Tensor& rows,
                                                                const ForwardContext& context) const {
  const std::vector<at::Tensor> kv = Linear::forward_together({&k_proj, &v_proj}, source, rows, context);
  const at::Tensor keys = kv[0].unflatten(2, {-1, head_dim_});
  return {(k_norm_ ? k_norm_->forward(keys) : keys).transpose(1, 2),
          kv[1].unflatten(2, {-1, head_dim_}).transpose(1, 2)};
}

// q, and, unless only the source is attended to, k and v of its own positions.
AttentionInputs T5GemmaAttention::own_inputs(const LayerInput& x, const T5GemmaPass& pass) const {
  AttentionInputs in;
  in.scale = scale_;
  in.free_order = pass.context->free_order;
  const auto heads = [&](const at::Tensor& y) { return y.unflatten(2, {-1, head_dim_}); };
  if (to_ == AttendsTo::source) {
    in.q = heads(q_proj.forward(x, pass.rows, *pass.context)).transpose(1, 2);
    return in;
  }
  const std::vector<at::Tensor> qkv =
      Linear::forward_together({&q_proj, &k_proj, &v_proj}, x, pass.rows, *pass.context);
  std::tie(in.q, in.k) =
      Rotary::apply(heads(qkv[0]), heads(qkv[1]), q_norm_ ? &*q_norm_ : nullptr,
                    k_norm_ ? &*k_norm_ : nullptr, window_ > 0 ? pass.sliding_rotary : pass.rotary);
  in.v = heads(qkv[2]).transpose(1, 2);
  return in;
}

at::Tensor T5GemmaAttention::attend(const AttentionInputs& in) const {
  return soft_cap_ > 0 ? capped_attention(in, {soft_cap_, 0, {}}) : attention(in);
}

// A new token of each row to what is cached in slots: [B, 1, H K].
at::Tensor T5GemmaAttention::mix_cached(const AttentionInputs& in, const T5GemmaPass& pass,
                                        T5GemmaCache& cache) const {
  const at::Tensor q = in.q.select(2, 0);
  if (to_ == AttendsTo::source) {
    CachedKeys keys = cache.cross.keys(*pass.cached_sources, in.q);
    keys.in_own_slot = true;
    return cached_attention(q, {}, keys, {scale_, soft_cap_}).unsqueeze(1);
  }
  const NewKeys added{in.k.select(2, 0), in.v.select(2, 0)};
  CachedScores scores{scale_, soft_cap_, window_};
  if (to_ == AttendsTo::own_and_source) scores.always = pass.source_lengths;
  return cached_attention(q, added, cache.self.keys(*pass.cache_rows, in.k), scores).unsqueeze(1);
}

// [B, H, seq, K]
at::Tensor T5GemmaAttention::mix(AttentionInputs in,
                                 const std::optional<std::pair<at::Tensor, at::Tensor>>& of_source,
                                 const T5GemmaPass& pass) const {
  const SampleGroups& samples = to_ == AttendsTo::own ? pass.own : pass.with_source;
  const std::vector<at::Tensor>& masks =
      window_ > 0 && to_ != AttendsTo::source ? samples.sliding_masks : samples.masks;
  const auto all_keys = [&](const at::Tensor& own, const at::Tensor& source) {
    return to_ == AttendsTo::own ? own : to_ == AttendsTo::source ? source : at::cat({own, source}, 2);
  };
  if (!samples.packed) {
    in.k = all_keys(in.k, of_source ? of_source->first : at::Tensor());
    in.v = all_keys(in.v, of_source ? of_source->second : at::Tensor());
    in.mask = masks[0];
    return attend(in);
  }
  const auto parts = [&](const at::Tensor& x, GroupSide side) {
    return x.defined() ? in_groups(x, samples.packed, side) : std::vector<at::Tensor>(samples.packed->size());
  };
  const std::vector<at::Tensor> q = parts(in.q, GroupSide::queries), k = parts(in.k, GroupSide::queries),
                                v = parts(in.v, GroupSide::queries),
                                source_k =
                                    parts(of_source ? of_source->first : at::Tensor(), GroupSide::keys),
                                source_v =
                                    parts(of_source ? of_source->second : at::Tensor(), GroupSide::keys);
  std::vector<at::Tensor> mixed;
  for (size_t i = 0; i < q.size(); i++) {
    AttentionInputs part = in;
    part.q = q[i];
    part.k = all_keys(k[i], source_k[i]);
    part.v = all_keys(v[i], source_v[i]);
    part.mask = masks[i];
    mixed.push_back(attend(part));
  }
  return out_of_groups(mixed, samples.packed, in.q.size(2), in.q.scalar_type());
}

at::Tensor T5GemmaAttention::forward(const LayerInput& x, const std::optional<at::Tensor>& source,
                                     const T5GemmaPass& pass, T5GemmaCache* cache) const {
  const AttentionInputs in = own_inputs(x, pass);
  if (pass.cache_rows != nullptr)
    return o_proj.forward(mix_cached(in, pass, *cache), pass.rows, *pass.context);
  at::Tensor mixed;
  if (to_ == AttendsTo::own) {
    mixed = mix(in, std::nullopt, pass);
  } else {
    mixed = mix(in, source_keys(*source, pass.source_rows, *pass.context), pass);
  }
  return o_proj.forward(mixed.transpose(1, 2).flatten(2), pass.rows, *pass.context);
}

T5GemmaLayer::T5GemmaLayer(const T5GemmaConfig& config, bool decoder, size_t layer)
    : self_attn_(config.stack(decoder), layer,
                 decoder && config.second ? AttendsTo::own_and_source : AttendsTo::own,
                 config.stack(decoder).hidden_size),
      mlp_(config.stack(decoder), config.stack(decoder).intermediate_size),
      before_self_(config.stack(decoder).hidden_size, config.stack(decoder).norm),
      after_self_(config.stack(decoder).hidden_size, config.stack(decoder).norm),
      before_mlp_(config.stack(decoder).hidden_size, config.stack(decoder).norm),
      after_mlp_(config.stack(decoder).hidden_size, config.stack(decoder).norm) {
  const DecoderConfig& c = config.stack(decoder);
  add("self_attn", self_attn_);
  add("pre_self_attn_layernorm", before_self_);
  add("post_self_attn_layernorm", after_self_);
  if (decoder && !config.second) {
    add("cross_attn", cross_attn_.emplace(c, layer, AttendsTo::source, config.encoder.hidden_size));
    add("pre_cross_attn_layernorm", before_cross_.emplace(c.hidden_size, c.norm));
    add("post_cross_attn_layernorm", after_cross_.emplace(c.hidden_size, c.norm));
  }
  add("mlp", mlp_);
  add("pre_feedforward_layernorm", before_mlp_);
  add("post_feedforward_layernorm", after_mlp_);
}

void T5GemmaLayer::add_part(ResidualStream& x, const RmsNorm& norm, const at::Tensor& part,
                            const T5GemmaPass& pass) const {
  x.add(norm.forward(part), pass.rows, derive(norm.name_key(), "out"), pass.dropout);
}

void T5GemmaLayer::forward(ResidualStream& x, const std::optional<at::Tensor>& source,
                           const T5GemmaPass& pass, T5GemmaCache* cache) const {
  add_part(x, after_self_, self_attn_.forward(x.input(before_self_, *pass.context), source, pass, cache),
           pass);
  if (cross_attn_) {
    add_part(x, *after_cross_,
             cross_attn_->forward(x.input(*before_cross_, *pass.context), source, pass, cache), pass);
  }
  add_part(x, after_mlp_,
           mlp_.forward(x.input(before_mlp_, *pass.context), pass.rows, *pass.context, pass.dropout), pass);
}

at::Tensor T5GemmaLayer::forward(const at::Tensor& x, const std::optional<at::Tensor>& source,
                                 const T5GemmaPass& pass) const {
  ResidualStream stream(x);
  forward(stream, source, pass);
  return stream.sum();
}

}  // namespace trainer
