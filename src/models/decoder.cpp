#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/models/score_head.h"

#include "device/target_device.h"
#include "models/layer_extras.h"
#include "nn/checkpoint.h"
#include "nn/score_head.h"
#include "ops/dropout.h"
#include "ops/side_by_side.h"

namespace trainer {

static std::vector<Projections::Output> projections_of(const DecoderConfig& c, size_t layer) {
  const auto [kv_heads, head_dim] = c.heads_of(layer);
  std::vector<Projections::Output> all{{"q_proj", c.num_heads * head_dim * (c.output_gate ? 2 : 1)}};
  if (c.shares_keys(layer)) return all;
  all.push_back({"k_proj", kv_heads * head_dim});
  if (!c.keys_are_values(layer)) all.push_back({"v_proj", kv_heads * head_dim});
  return all;
}

DecoderAttention::DecoderAttention(const DecoderConfig& c, size_t layer)
    : qkv_(*this, c.hidden_size, projections_of(c, layer), c.fused_qkv, c.qkv_bias),
      o_proj_(c.num_heads * c.heads_of(layer).head_dim, c.hidden_size, c.output_bias),
      head_dim_(c.heads_of(layer).head_dim),
      window_(c.sliding[layer] ? c.sliding_window : 0),
      rotated_(c.rotated[layer]),
      gated_(c.output_gate),
      norms_whole_(c.qk_norm_whole),
      rotates_neighbours_(c.rotates_neighbours),
      keys_are_values_(c.keys_are_values(layer)),
      shares_keys_(c.shares_keys(layer)),
      rotary_dim_(c.rope.rotary_dim),
      scale_(c.attention_scale),
      soft_cap_(c.attention_soft_cap) {
  add(c.output_proj, o_proj_);
  if (c.value_norm) value_norm_ = c.norm.epsilon;
  if (!c.qk_norm && !c.qk_norm_whole) return;
  add(c.q_norm, q_norm_.emplace(head_dim_ * (c.qk_norm_whole ? c.num_heads : 1), c.norm));
  if (shares_keys_) return;
  add(c.k_norm, k_norm_.emplace(head_dim_ * (c.qk_norm_whole ? c.num_kv_heads : 1), c.norm));
}

std::vector<std::string> DecoderAttention::default_lora_targets() const {
  const std::string query = qkv_.layer_of("q_proj"), value = qkv_.layer_of("v_proj");
  return query == value || keys_are_values_ || shares_keys_ ? std::vector{query} : std::vector{query, value};
}

// Puts the first dimensions of each pair of neighbours before the second ones. Scores stay the same if
// queries and keys are both in this order, in which the usual rotation finds its pairs.
static at::Tensor halves_of_pairs(const at::Tensor& heads, int64_t rotary_dim) {
  const at::Tensor pairs = heads.narrow(-1, 0, rotary_dim).unflatten(-1, {-1, 2});
  const at::Tensor halves = pairs.transpose(-1, -2).flatten(-2);
  const int64_t rest = heads.size(-1) - rotary_dim;
  return rest == 0 ? halves : at::cat({halves, heads.narrow(-1, rotary_dim, rest)}, -1);
}

// Whether the gradients of queries, keys and values can be columns of one matrix, as these are.
bool DecoderAttention::keeps_beside(const std::vector<at::Tensor>& qkv) const {
  const bool plain = rotated_ && !rotates_neighbours_ && !gated_ && !norms_whole_ && !value_norm_;
  return plain && !keys_are_values_ && at::GradMode::is_enabled() && runs_on_gpu(qkv[0].device()) &&
         side_by_side(qkv);
}

void DecoderAttention::position(AttentionInputs& in, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& beside, const DecoderPass& pass) const {
  const RmsNorm *norm_q = q_norm_ ? &*q_norm_ : nullptr, *norm_k = k_norm_ ? &*k_norm_ : nullptr;
  const auto heads_of = [&](const at::Tensor& x, const RmsNorm*& norm) {
    const at::Tensor heads =
        x.dim() == 4
            ? x
            : (norms_whole_ ? std::exchange(norm, nullptr)->forward(x) : x).unflatten(2, {-1, head_dim_});
    return rotated_ && rotates_neighbours_ ? halves_of_pairs(heads, rotary_dim_) : heads;
  };
  const at::Tensor q_heads = heads_of(q, norm_q), k_heads = heads_of(k, norm_k);
  if (rotated_) {
    const Rotary::Tables& tables = window_ > 0 ? pass.sliding_rotary : pass.rotary;
    if (beside.defined()) {
      const AttentionHeads heads = Rotary::apply_beside(
          q_heads, k_heads, beside.unflatten(2, {-1, head_dim_}), norm_q, norm_k, tables);
      std::tie(in.q, in.k, in.v) = std::tie(heads.q, heads.k, heads.v);
    } else {
      std::tie(in.q, in.k) = Rotary::apply(q_heads, k_heads, norm_q, norm_k, tables);
    }
    if (pass.context->light && norm_q != nullptr)
      in.remade = Rotary::remade({in.q, in.k}, q_heads, k_heads, *norm_q, *norm_k, tables);
    return;
  }
  const auto normed = [](const RmsNorm* norm, const at::Tensor& x) {
    return (norm != nullptr ? norm->forward(x) : x).transpose(1, 2);
  };
  in.q = normed(norm_q, q_heads);
  in.k = normed(norm_k, k_heads);
}

// Values that lie in one matrix with queries and keys would keep all of it for backward. Without norms
// nothing else needs the unrotated heads, so the values move to memory of their own.
at::Tensor DecoderAttention::values(const at::Tensor& v, const DecoderPass& pass) const {
  if (value_norm_)
    return norm_without_weight(v.unflatten(2, {-1, head_dim_}), pass.ones, *value_norm_).transpose(1, 2);
  const bool alone = q_norm_ || !rotated_ || v.storage().nbytes() <= v.nbytes();
  const at::Tensor own = alone || !at::GradMode::is_enabled() ? v : v.contiguous();
  return own.unflatten(2, {-1, head_dim_}).transpose(1, 2);
}

// The kernel turns queries and keys together; a head of the queries stands for the keys.
AttentionInputs DecoderAttention::with_shared_keys(const at::Tensor& q, const DecoderPass& pass) const {
  const at::Tensor heads = q.unflatten(2, {-1, head_dim_});
  AttentionInputs in;
  in.q = Rotary::apply(heads, heads.narrow(2, 0, 1), &*q_norm_, &*q_norm_,
                       window_ > 0 ? pass.sliding_rotary : pass.rotary)
             .first;
  in.k = pass.shared.k;
  in.v = pass.shared.v;
  return in;
}

std::pair<AttentionInputs, at::Tensor> DecoderAttention::inputs(const LayerInput& x,
                                                                const DecoderPass& pass) const {
  AttentionInputs in;
  const std::vector<at::Tensor> qkv = qkv_.forward(x, pass.rows, *pass.context);
  if (shares_keys_) return {with_shared_keys(qkv[0], pass), at::Tensor()};
  // With a gate, the heads of queries are twice as wide.
  const at::Tensor q_and_gate = gated_ ? qkv[0].unflatten(2, {-1, 2, head_dim_}) : at::Tensor();
  const bool beside = keeps_beside(qkv);
  position(in, gated_ ? q_and_gate.select(3, 0) : qkv[0], qkv[1], beside ? qkv[2] : at::Tensor(), pass);
  if (pass.query_growth.defined()) {
    in.q = in.q * pass.query_growth;
    in.remade = nullptr;  // these heads are others
  }
  if (!beside) in.v = values(qkv[keys_are_values_ ? 1 : 2], pass);
  return {in, gated_ ? q_and_gate.select(3, 1) : at::Tensor()};
}

at::Tensor DecoderAttention::mix(const AttentionInputs& in, const DecoderPass& pass) const {
  if (in_chunks(in.q)) {
    return capped_attention(
        in, {soft_cap_, window_, pass.packed ? pass.packed->lengths : std::vector<int64_t>{}});
  }
  return pass.packed ? packed_attention(in, *pass.packed, window_) : attention(in);
}

at::Tensor DecoderAttention::mix_cached(const AttentionInputs& in, const DecoderPass& pass,
                                        KvCache& cache) const {
  // Shared keys are in the cache already.
  const NewKeys added = shares_keys_ ? NewKeys{} : NewKeys{in.k.select(2, 0), in.v.select(2, 0)};
  return cached_attention(in.q.select(2, 0), added, cache.keys(*pass.cache_rows, shares_keys_ ? in.q : in.k),
                          {scale_, soft_cap_, window_})
      .view({in.q.size(0), 1, -1, head_dim_});
}

at::Tensor DecoderAttention::forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const {
  auto [in, gate] = inputs(x, pass);
  in.scale = scale_;
  in.free_order = pass.context->free_order;
  at::Tensor out;  // [B, S, H, K]
  if (pass.has_one_token()) {
    out = mix_cached(in, pass, *cache);
  } else {
    if (window_ > 0 && !in_chunks(in.q)) in.mask = pass.window_mask;
    in.causal = !in.mask.defined();
    if (!shares_keys_) keep_keys(in, pass, cache);
    out = mix(in, pass).transpose(1, 2);
  }
  if (gated_) out = gated_activation(Activation::sigmoid, gate, out);
  return o_proj_.forward(out.flatten(2), pass.rows, *pass.context);
}

void DecoderAttention::keep_keys(const AttentionInputs& in, const DecoderPass& pass, KvCache* cache) const {
  if (cache != nullptr) cache->put(*pass.cache_rows, *pass.first_row, in.k, in.v, pass.packed.has_value());
  if (pass.stores != nullptr) *pass.stores = {in.k, in.v};
}

std::unique_ptr<Mixer> make_attention(const DecoderConfig& c, size_t layer) {
  return std::make_unique<DecoderAttention>(c, layer);
}

DecoderLayer::DecoderLayer(const DecoderConfig& c, size_t layer)
    : mixer(c.mixer(c, layer)), feed_forward(c.feed_forward(c, layer)), residual_scale_(c.residual_scale) {
  add(mixer->name_in_layer(), *mixer);
  add(feed_forward->name_in_layer(), *feed_forward);
  const auto add_norm = [&](const std::string& name, std::optional<RmsNorm>& norm) {
    if (!name.empty()) add(name, norm.emplace(c.hidden_size, c.norm));
  };
  add_norm(c.layer_norms.before_attention, before_attention);
  add_norm(c.layer_norms.after_attention, after_attention);
  add_norm(c.layer_norms.before_mlp, before_mlp);
  add_norm(c.layer_norms.after_mlp, after_mlp);
  if (c.per_layer_size > 0) per_layer_ = std::make_unique<PerLayerGate>(*this, c);
  if (c.layer_scalar) add("layer_scalar", layer_scalar_.emplace(std::vector<int64_t>{1}));
}

DecoderLayer::~DecoderLayer() = default;

void DecoderLayer::add_part(ResidualStream& x, const std::optional<RmsNorm>& norm,
                            const at::Tensor& part) const {
  const at::Tensor normed = norm ? norm->forward(part) : part;
  x.add(residual_scale_ == 1.0 ? normed : normed * residual_scale_);
}

void DecoderLayer::forward(ResidualStream& x, const DecoderPass& pass, KvCache* cache) const {
  add_part(x, after_attention, mixer->forward(x.input(before_attention, *pass.context), pass, cache));
  add_part(x, after_mlp, feed_forward->forward(x.input(before_mlp, *pass.context), pass));
  if (per_layer_) x.add(per_layer_->forward(x.sum(), pass));
  if (!layer_scalar_) return;
  const at::Tensor sum = x.sum();
  x = ResidualStream(sum * layer_scalar_->as(sum.scalar_type()));
}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const DecoderPass& pass) const {
  ResidualStream stream(x);
  forward(stream, pass);
  return stream.sum();
}

DecoderBody::DecoderBody(const DecoderConfig& c)
    : embed_tokens(c.vocab_size, c.hidden_size, c.padding_idx), norm(c.hidden_size, c.norm) {
  add("embed_tokens", embed_tokens);
  for (size_t i = 0; i < static_cast<size_t>(c.num_layers); i++) {
    layers.push_back(std::make_unique<DecoderLayer>(c, i));
    add("layers." + std::to_string(i), *layers.back());
  }
  add(c.final_norm, norm);
  if (c.per_layer_size > 0) per_layer = std::make_unique<PerLayerInputs>(*this, c);
}

DecoderBody::~DecoderBody() = default;

Decoder::Decoder(const nlohmann::json& config, const DecoderConfig& facts, bool separate_head)
    : Model(config),
      c_(facts),
      body_(c_),
      rotary_(c_.rope),
      head_(body_.embed_tokens.weight, {c_.logit_scale, c_.logit_soft_cap}) {
  if (c_.sliding_rope) sliding_rotary_.emplace(*c_.sliding_rope);
  add(c_.body, body_);
  if (const auto scores = score_head_in(config)) {
    add("score", head_.score_with({.hidden_size = c_.hidden_size,
                                   .outputs = scores->outputs(),
                                   .numbers = scores->score == RowScore::number}));
  } else if (separate_head || !c_.tied) {
    add("lm_head", head_.own_weight());
  }
  assign_names();
}

std::vector<std::string> Decoder::default_lora_targets() const {
  std::vector<std::string> out;
  for (const auto& layer : body_.layers) {
    for (const std::string& name : layer->mixer->default_lora_targets())
      if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  }
  return out;
}

at::Tensor Decoder::embed(const at::Tensor& ids) const {
  const at::Tensor rows = body_.embed_tokens.forward(ids, dtype());
  if (c_.embedding_scale == 1.0) return rows;
  return rows * rounded_factor(c_.embedding_scale, c_.rounded_embedding_scale ? dtype() : at::kFloat);
}

void Decoder::rotate(DecoderPass& pass, const at::Tensor& positions, const std::vector<int64_t>& lengths,
                     const at::TensorOptions& options) const {
  pass.rotary = rotary_.tables(positions, lengths, options);
  pass.sliding_rotary = sliding_rotary_ ? sliding_rotary_->tables(positions, lengths, options) : pass.rotary;
  if (c_.value_norm) {
    const int64_t widest = std::max(c_.head_dim, c_.full_heads ? c_.full_heads->head_dim : 0);
    pass.ones = at::ones({widest}, options.requires_grad(false));
  }
  // Before that length the factor is 1.
  if (c_.query_growth_beta == 0 || std::ranges::max(lengths) <= c_.query_growth_length) return;
  const at::Tensor turns = (positions.to(at::kFloat) / c_.query_growth_length).floor_();
  const at::Tensor growth =
      (1 + c_.query_growth_beta * (1 + turns).log_()).unsqueeze(-1);  // [(batch,) seq, 1]
  pass.query_growth = (growth.dim() == 3 ? growth.unsqueeze(1) : growth).to(options.dtype());
}

DecoderPass Decoder::start(const ForwardContext& context, const at::Tensor& dropout_keys, const at::Tensor& h,
                           const at::Tensor& positions, const std::vector<int64_t>& lengths) const {
  const int64_t seq = h.size(1);
  DecoderPass pass{&context, row_keys(dropout_keys, seq)};
  rotate(pass, positions, lengths, h.options());
  if (c_.attention_soft_cap == 0 && c_.sliding_window > 0 && seq > c_.sliding_window) {
    pass.window_mask = sliding_window_mask(seq, seq, c_.sliding_window, h.options().requires_grad(false));
  }
  return pass;
}

// Rows are either padded on the right, so that a causal mask alone hides the padding, or packed.
DecoderPass Decoder::start(const ForwardContext& context, const MicroBatch& batch,
                           const at::Tensor& h) const {
  if (!batch.packed) {
    const at::Tensor positions = at::arange(h.size(1), batch.dropout_keys.options());
    DecoderPass pass = start(context, batch.dropout_keys, h, positions, batch.lengths);
    pass.lengths = batch.lengths;
    return pass;
  }
  const PackedRow& row = *batch.packed;
  DecoderPass pass{&context, row_keys(row.dropout_keys, row.positions)};
  rotate(pass, row.positions, batch.lengths, h.options());
  pass.packed = {row.starts, batch.lengths, batch.longest};
  return pass;
}

at::Tensor Decoder::supervised_states(const MicroBatch& batch, const ForwardContext& context) const {
  at::Tensor embedded = embed(batch.input_ids);
  DecoderPass pass = start(context, batch, embedded);
  embedded = noisy(embedded, batch, pass.rows, context);
  LayerExtras extras(c_, body_, batch.input_ids, embedded, pass);
  ResidualStream h(embedded);
  for (size_t i = 0; i < body_.layers.size(); i++) {
    const DecoderLayer& layer = *body_.layers[i];
    extras.give(pass, i);
    const bool recomputed = static_cast<int64_t>(i) < context.recompute_blocks;
    if (recomputed && extras.any()) {
      h = ResidualStream(recomputed_with_extras(layer, h.sum(), pass, entering(layer)));
    } else if (recomputed) {
      const auto run = [&layer, pass, context = context.in_recomputed_block()](const at::Tensor& x,
                                                                               const auto&) mutable {
        pass.context = &context;
        return layer.forward(x, pass);
      };
      h = ResidualStream(
          checkpoint(h.sum(), std::nullopt, context.anchor, {run, entering(layer), context.kept_inputs}));
    } else {
      const auto entered = enter(layer);
      layer.forward(h, pass);
    }
  }
  const at::Tensor supervised =
      body_.norm.forward(h.sum().flatten(0, 1).index_select(0, batch.supervised_rows));
  return head_.states(supervised, pass.rows.flatten().index_select(0, batch.supervised_rows), context);
}

void Decoder::untie_head() {
  if (!head_.tied() || head_.scores() != nullptr) return;
  add("lm_head", head_.own_weight());
  assign_names();
}

bool Decoder::share_adapter_with_head() {
  if (!head_.tied() || head_.scores() != nullptr) return false;
  head_.share_adapter(body_.embed_tokens);
  return true;
}

bool Decoder::packs_on_gpu() const {
  if (c_.attention_soft_cap != 0) return false;
  for (size_t layer = 0; layer < body_.layers.size(); layer++) {
    const bool recurrent = layer < c_.recurrent.size() && c_.recurrent[layer];
    if (!recurrent && !packs_in_one_kernel(dtype(), c_.heads_of(layer).head_dim)) return false;
  }
  return true;
}

bool Decoder::packs_by_starts(at::Device) const {
  const bool fixed = rotary_.has_fixed_frequencies() &&
                     (!sliding_rotary_ || sliding_rotary_->has_fixed_frequencies()) &&
                     c_.query_growth_beta == 0;
  return fixed && std::ranges::none_of(c_.recurrent, std::identity()) && packs_on_gpu();
}

std::vector<Module*> Decoder::blocks() {
  std::vector<Module*> all;
  for (const auto& layer : body_.layers) all.push_back(layer.get());
  return all;
}

std::vector<std::string> Decoder::tied_names() const {
  const std::string embedding = c_.body + ".embed_tokens.weight";
  if (!head_.tied() || head_.scores() != nullptr) return {embedding};
  return {embedding, "lm_head.weight"};
}

std::unique_ptr<Model> make_decoder(const nlohmann::json& config, const DecoderConfig& facts,
                                    bool separate_head) {
  return std::make_unique<Decoder>(config, facts, separate_head);
}

}  // namespace trainer
