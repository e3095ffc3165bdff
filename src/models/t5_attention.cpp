// The attention of T5: over itself with a bias by distance, and over the source.
#include <tuple>

#include <ATen/ATen.h>

#include "base/random.h"
#include "models/t5.h"

namespace trainer {

T5Attention::T5Attention(const T5Config& c, bool has_bias, bool bidirectional)
    : q(c.d_model, c.num_heads * c.d_kv, false),
      k(c.d_model, c.num_heads * c.d_kv, false),
      v(c.d_model, c.num_heads * c.d_kv, false),
      o(c.num_heads * c.d_kv, c.d_model, false),
      heads_(c.num_heads) {
  add("q", q);
  add("k", k);
  add("v", v);
  add("o", o);
  if (has_bias) {
    add("relative_attention_bias",
        relative_attention_bias.emplace(c.num_buckets, c.max_distance, c.num_heads, bidirectional));
  }
}

at::Tensor T5Attention::forward(const LayerInput& x, const std::optional<at::Tensor>& source,
                                const T5Pass& pass, T5BlockCache* cache) const {
  if (pass.one_kernel || pass.self_groups)
    return o.forward(mix_rows(x, source, pass), pass.rows, *pass.context);
  if (pass.cache_rows != nullptr)
    return o.forward(mix_cached(x.x, source.has_value(), pass, *cache), pass.rows, *pass.context);
  const at::Tensor mixed =
      source ? mix_cross(cross_inputs(x, *source, pass), pass) : mix_self(self_inputs(x, pass), pass);
  return o.forward(mixed.transpose(1, 2).flatten(2), pass.rows, *pass.context);
}

AttentionInputs T5Attention::self_inputs(const LayerInput& x, const T5Pass& pass) const {
  const std::vector<at::Tensor> qkv = Linear::forward_together({&q, &k, &v}, x, pass.rows, *pass.context);
  AttentionInputs in;
  in.q = split(qkv[0]);
  in.k = split(qkv[1]);
  in.v = split(qkv[2]);
  return in;
}

std::pair<at::Tensor, at::Tensor> T5Attention::source_keys(const at::Tensor& source, const at::Tensor& rows,
                                                           const ForwardContext& context) const {
  const std::vector<at::Tensor> kv = Linear::forward_together({&k, &v}, source, rows, context);
  return {split(kv[0]), split(kv[1])};
}

// x [B, 1, D] -> [B, 1, H K]
at::Tensor T5Attention::mix_cached(const at::Tensor& x, bool cross, const T5Pass& pass,
                                   T5BlockCache& cache) const {
  const auto heads = [&](const at::Tensor& y) { return y.select(1, 0).unflatten(1, {heads_, -1}); };
  if (cross) {
    const at::Tensor own = heads(q.forward(x, pass.rows, *pass.context));
    CachedKeys keys = cache.cross.keys(*pass.cached_sources, own.unsqueeze(2));
    keys.in_own_slot = true;
    return cached_attention(own, {}, keys, {}).unsqueeze(1);
  }
  const std::vector<at::Tensor> qkv = Linear::forward_together({&q, &k, &v}, x, pass.rows, *pass.context);
  const NewKeys added{heads(qkv[1]), heads(qkv[2])};
  const CachedKeys keys = cache.self.keys(*pass.cache_rows, added.k.unsqueeze(2));
  return cached_attention(heads(qkv[0]), added, keys, {.bias = cache.bias}).unsqueeze(1);
}

AttentionInputs T5Attention::cross_inputs(const LayerInput& x, const at::Tensor& source,
                                          const T5Pass& pass) const {
  AttentionInputs in;
  in.q = split(q.forward(x, pass.rows, *pass.context));
  std::tie(in.k, in.v) = source_keys(source, pass.source_rows, *pass.context);
  return in;
}

// [B, seq, H K] -> [B, H, seq, K]
at::Tensor T5Attention::split(const at::Tensor& x) const {
  return x.unflatten(2, {heads_, -1}).transpose(1, 2);
}

BiasAndDropout T5Attention::extra(const T5Pass& pass) const {
  BiasAndDropout extra;
  extra.row_keys = pass.rows;
  extra.key = derive(name_key(), "weights");
  extra.p = pass.dropout;
  extra.chunk_bytes = pass.context->attention_chunk_bytes;
  return extra;
}

void T5Attention::add_bias(BiasAndDropout& to, const T5Pass& pass, at::ScalarType type) const {
  const RelativeBias& bias = pass.bias != nullptr ? *pass.bias : *relative_attention_bias;
  to.bias_weight = pass.bias_weight.defined() ? pass.bias_weight.to(type) : bias.weight.as(type);
  to.bias_buckets = pass.buckets;
}

// [B, tokens, D] -> [B, tokens, H K]; B is 1 where samples are packed.
at::Tensor T5Attention::mix_rows(const LayerInput& x, const std::optional<at::Tensor>& source,
                                 const T5Pass& pass) const {
  PackedAttentionInputs in;
  in.heads = heads_;
  BiasAndDropout with = extra(pass);
  if (source) {
    in.q = q.forward(x, pass.rows, *pass.context);
    const std::vector<at::Tensor> kv =
        Linear::forward_together({&k, &v}, *source, pass.source_rows, *pass.context);
    in.k = kv[0];
    in.v = kv[1];
    in.groups = pass.cross_groups;
    with.key_lengths = pass.source_lengths;
  } else {
    const std::vector<at::Tensor> qkv = Linear::forward_together({&q, &k, &v}, x, pass.rows, *pass.context);
    in.q = qkv[0];
    in.k = qkv[1];
    in.v = qkv[2];
    in.groups = pass.self_groups;
    with.key_lengths = pass.lengths;
    in.causal = pass.causal;
    add_bias(with, pass, in.q.scalar_type());
  }
  if (!pass.one_kernel) return packed_attention_recomputed(in, with);
  const SampleStarts starts{pass.starts.queries, source ? pass.starts.keys : pass.starts.queries};
  return attention_in_one_kernel(in, with, starts);
}

at::Tensor T5Attention::mix_self(AttentionInputs in, const T5Pass& pass) const {
  if (!pass.recomputed) {
    in.mask = pass.self_mask;
    if (pass.bias == nullptr) {
      const int64_t seq = in.q.size(2);
      const at::Tensor own = relative_attention_bias->bias(seq, seq, 0, in.q.scalar_type());
      in.mask = in.mask.defined() ? own + in.mask : own;
    }
    return attention(in);
  }
  in.causal = pass.causal;
  BiasAndDropout with = extra(pass);
  add_bias(with, pass, in.q.scalar_type());
  with.key_lengths = pass.lengths;
  return attention_recomputed(in, with);
}

at::Tensor T5Attention::mix_cross(AttentionInputs in, const T5Pass& pass) const {
  if (pass.dropout == 0.0) {
    in.mask = pass.cross_mask;
    return attention(in);
  }
  BiasAndDropout with = extra(pass);
  with.key_lengths = pass.source_lengths;
  return attention_recomputed(in, with);
}

}  // namespace trainer
