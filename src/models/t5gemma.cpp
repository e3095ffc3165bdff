// Tested against transformers, models/{t5gemma,t5gemma2}/modeling_*.py.
#include "models/t5gemma.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "base/random.h"
#include "nn/checkpoint.h"
#include "ops/dropout.h"
#include "ops/matmul.h"

namespace trainer {

T5GemmaStack::T5GemmaStack(const T5GemmaConfig& config, bool decoder, const T5GemmaStack* shared)
    : c_(config.stack(decoder)),
      eoi_token_(config.eoi_token),
      norm_(c_.hidden_size, c_.norm),
      rotary_(c_.rope) {
  if (shared != nullptr) {
    embed_tokens.emplace(&*shared->embed_tokens, c_.padding_idx);
    eoi_ = shared->eoi_;
  } else {
    embed_tokens.emplace(c_.vocab_size, c_.hidden_size, c_.padding_idx);
    if (config.second) {
      eoi_ = &own_eoi_.emplace(std::vector<int64_t>{c_.hidden_size});
      embed_tokens->add("eoi_embedding", *own_eoi_);
    }
  }
  if (c_.sliding_rope) sliding_rotary_.emplace(*c_.sliding_rope);
  add("embed_tokens", *embed_tokens);
  for (size_t i = 0; i < static_cast<size_t>(c_.num_layers); i++) {
    layers.push_back(std::make_unique<T5GemmaLayer>(config, decoder, i));
    add("layers." + std::to_string(i), *layers.back());
  }
  add("norm", norm_);
}

bool T5GemmaStack::has_sliding() const { return std::ranges::find(c_.sliding, true) != c_.sliding.end(); }
bool T5GemmaStack::has_full() const { return std::ranges::find(c_.sliding, false) != c_.sliding.end(); }

at::Tensor T5GemmaStack::embed(const at::Tensor& ids, at::ScalarType type) const {
  const at::Tensor rows = embed_tokens->forward(ids, type) * rounded_factor(c_.embedding_scale, type);
  if (eoi_ == nullptr) return rows;
  return at::where(ids.eq(eoi_token_).unsqueeze(-1), eoi_->as(type), rows);
}

// The rotation depends on positions only: T5GemmaConfig refuses the others.
void T5GemmaStack::rotate(T5GemmaPass& pass, const at::Tensor& positions,
                          const at::TensorOptions& options) const {
  pass.rotary = rotary_.tables(positions, {}, options);
  pass.sliding_rotary = sliding_rotary_ ? sliding_rotary_->tables(positions, {}, options) : pass.rotary;
}

uint64_t T5GemmaStack::dropout_key(const char* site) const { return derive(name_key(), site); }

at::Tensor T5GemmaStack::forward(const at::Tensor& embedded, const std::optional<at::Tensor>& source,
                                 T5GemmaPass pass, int64_t recompute) const {
  ResidualStream h(dropout(embedded, pass.rows, dropout_key("in"), pass.dropout));
  for (size_t i = 0; i < layers.size(); i++) {
    const T5GemmaLayer& layer = *layers[i];
    if (static_cast<int64_t>(i) < recompute) {
      const auto run = [&layer, pass, context = pass.context->in_recomputed_block()](
                           const at::Tensor& x, const auto& other) mutable {
        pass.context = &context;
        return layer.forward(x, other, pass);
      };
      h = ResidualStream(checkpoint(h.sum(), source, pass.context->anchor,
                                    {run, pass.model->entering(layer), pass.context->kept_inputs}));
    } else {
      const auto entered = pass.model->enter(layer);
      // An alias for each layer, so that its gradients of the source are summed first, as in a recomputed
      // layer.
      layer.forward(h, source ? std::optional(source->view_as(*source)) : std::nullopt, pass);
    }
  }
  return h.sum();
}

at::Tensor T5GemmaStack::finish(const at::Tensor& x, const at::Tensor& rows, const T5GemmaPass& pass) const {
  return dropout(norm_.forward(x), rows, dropout_key("final"), pass.dropout);
}

T5Gemma::T5Gemma(const nlohmann::json& config, bool separate_head)
    : Model(config),
      c_(config),
      encoder_(c_, false, nullptr),
      decoder_(c_, true, shares_embedding() ? &encoder_ : nullptr),
      head_((shares_embedding() ? encoder_ : decoder_).embed_tokens->weight,
            {1.0, c_.decoder.logit_soft_cap}) {
  add("model", body_);
  if (c_.second) {
    whole_encoder_.add("text_model", encoder_);
    body_.add("encoder", whole_encoder_);
  } else {
    body_.add("encoder", encoder_);
  }
  body_.add("decoder", decoder_);
  if (separate_head || !c_.tied) add("lm_head", head_.own_weight());
  assign_names();
}

T5GemmaPass T5Gemma::start(const ForwardContext& context, const at::Tensor& rows) const {
  T5GemmaPass pass;
  pass.context = &context;
  pass.model = this;
  pass.dropout = context.training ? c_.dropout : 0.0;
  pass.rows = rows;
  return pass;
}

at::Tensor T5Gemma::source_rows(const at::Tensor& rows) const {
  constexpr int64_t kOfSource = 0x5ba3'91c7'04e2'6f1dLL;  // so that dropout of adapters differs
  return c_.second ? at::bitwise_xor(rows, kOfSource) : rows;
}

// The lengths of a group whose samples have several; undefined otherwise.
static at::Tensor lengths_of(const AttentionGroup& group) {
  const bool padded = group.keys.places.numel() < group.samples * group.keys.length;
  return padded ? group.key_lengths : at::Tensor();
}

static at::Tensor lengths_of(const MicroBatch& batch) {
  const bool equal =
      std::ranges::all_of(batch.lengths, [&](int64_t length) { return length == batch.input_ids.size(1); });
  return equal ? at::Tensor() : batch.input_lengths;
}

// Of masks: packed samples are laid out in the type of products.
static at::TensorOptions mask_options(const at::Tensor& embedded, bool packed) {
  const at::TensorOptions options = embedded.options().requires_grad(false);
  return packed ? options.dtype(product_type(embedded)) : options;
}

// A group for each of the packed sources.
static AttentionGroups groups_of_one(const MicroBatch& batch) {
  std::vector<AttentionGroup> groups;
  const at::TensorOptions options = batch.input_lengths.options();
  int64_t begin = 0;
  for (const int64_t length : batch.lengths) {
    AttentionGroup& group = groups.emplace_back();
    group.samples = 1;
    group.queries = {length, at::arange(begin, begin + length, options), at::arange(length, options)};
    group.keys = group.queries;
    begin += length;
  }
  return shared_groups(groups);
}

void T5Gemma::group_sources(T5GemmaPass& pass, const MicroBatch& batch, const at::Tensor& embedded,
                            Sources sources) const {
  const at::TensorOptions options = mask_options(embedded, batch.packed.has_value());
  const auto add = [&](int64_t positions, const at::Tensor& lengths) {
    const auto mask = [&](bool needed, const Sight& sight) {
      return needed ? seen_mask(sight, positions, lengths, options) : at::Tensor();
    };
    pass.own.masks.push_back(mask(encoder_.has_full(), {}));
    pass.own.sliding_masks.push_back(mask(encoder_.has_sliding(), c_.sliding_sight(false)));
  };
  if (!batch.packed) return add(batch.input_ids.size(1), lengths_of(batch));
  pass.own.packed =
      sources == Sources::one_by_one ? groups_of_one(batch) : shared_groups(batch.packed_target->encoder);
  for (const AttentionGroup& group : *pass.own.packed) add(group.keys.length, lengths_of(group));
}

void T5Gemma::group_targets(T5GemmaPass& pass, const MicroBatch& batch, const at::Tensor& embedded) const {
  const at::TensorOptions options = mask_options(embedded, batch.packed.has_value());
  const Sight full{-1, 0}, sliding = c_.sliding_sight(true);
  const auto add_own = [&](int64_t positions) {
    const auto mask = [&](bool needed, const Sight& sight) {
      return needed ? seen_mask(sight, positions, {}, options) : at::Tensor();
    };
    pass.own.masks.push_back(mask(decoder_.has_full(), full));
    pass.own.sliding_masks.push_back(mask(decoder_.has_sliding(), sliding));
  };
  const auto add_with_source = [&](int64_t positions, const at::Tensor& lengths, int64_t sources) {
    if (!c_.second) return pass.with_source.masks.push_back(source_mask(lengths, sources, options));
    const auto mask = [&](bool needed, const Sight& sight) {
      return needed ? merged_mask(sight, positions, lengths, sources, options) : at::Tensor();
    };
    pass.with_source.masks.push_back(mask(decoder_.has_full(), full));
    pass.with_source.sliding_masks.push_back(mask(decoder_.has_sliding(), sliding));
  };
  if (!batch.packed) {
    const int64_t positions = batch.decoder_input_ids.size(1);
    if (!c_.second) add_own(positions);
    return add_with_source(positions, lengths_of(batch), batch.input_ids.size(1));
  }
  pass.own.packed = shared_groups(batch.packed_target->decoder);
  pass.with_source.packed = shared_groups(batch.packed_target->cross);
  for (const AttentionGroup& group : *pass.own.packed)
    if (!c_.second) add_own(group.queries.length);
  for (const AttentionGroup& group : *pass.with_source.packed)
    add_with_source(group.queries.length, lengths_of(group), group.keys.length);
}

Encoded T5Gemma::encode(const MicroBatch& batch, const ForwardContext& context, int64_t recompute,
                        Sources sources) const {
  const at::Tensor embedded = encoder_.embed(batch.input_ids, dtype());
  T5GemmaPass pass =
      start(context, batch.packed ? row_keys(batch.packed->dropout_keys, batch.packed->positions)
                                  : row_keys(batch.dropout_keys, batch.input_ids.size(1)));
  encoder_.rotate(
      pass,
      batch.packed ? batch.packed->positions : at::arange(batch.input_ids.size(1), batch.input_ids.options()),
      embedded.options());
  group_sources(pass, batch, embedded, sources);
  const at::Tensor states =
      encoder_.forward(noisy(embedded, batch, pass.rows, context), std::nullopt, pass, recompute);
  return {encoder_.finish(states, pass.rows, pass), pass.rows};
}

at::Tensor T5Gemma::supervised_states(const MicroBatch& batch, const ForwardContext& context) const {
  const int64_t encoder_recompute = std::min(context.recompute_blocks, c_.encoder.num_layers);
  const Encoded source = encode(batch, context, encoder_recompute);
  const at::Tensor embedded = decoder_.embed(batch.decoder_input_ids, dtype());
  const PackedRow* row = batch.packed ? &batch.packed_target->row : nullptr;
  const int64_t length = batch.decoder_input_ids.size(1);
  T5GemmaPass pass = start(context, row != nullptr ? row_keys(row->dropout_keys, row->positions)
                                                   : row_keys(batch.dropout_keys, length));
  pass.source_rows = source_rows(source.rows);
  decoder_.rotate(pass,
                  row != nullptr ? row->positions : at::arange(length, batch.decoder_input_ids.options()),
                  embedded.options());
  group_targets(pass, batch, embedded);
  const at::Tensor decoded =
      decoder_.forward(embedded, source.states, pass, context.recompute_blocks - encoder_recompute);
  const at::Tensor rows = pass.rows.flatten().index_select(0, batch.supervised_rows);
  const at::Tensor supervised = decoded.flatten(0, 1).index_select(0, batch.supervised_rows);
  return head_.states(decoder_.finish(supervised, rows, pass), rows, context);
}

void T5Gemma::untie_head() {
  if (!head_.tied()) return;
  add("lm_head", head_.own_weight());
  assign_names();
}

std::vector<Parameter*> T5Gemma::vocabulary() {
  std::vector<Parameter*> tables = head_.tables();
  for (T5GemmaStack* stack : {&encoder_, &decoder_}) {
    Embedding& embedding = *stack->embed_tokens;
    const bool own = &embedding.table() == &embedding.weight;
    if (own && std::ranges::find(tables, &embedding.weight) == tables.end())
      tables.push_back(&embedding.weight);
  }
  return tables;
}

std::vector<Module*> T5Gemma::blocks() {
  std::vector<Module*> all;
  for (const T5GemmaStack* stack : {&encoder_, &decoder_}) {
    for (const auto& layer : stack->layers) all.push_back(layer.get());
  }
  return all;
}

std::vector<std::string> T5Gemma::tied_names() const {
  const std::string of_decoder = "model.decoder.embed_tokens.weight";
  std::vector<std::string> names{of_decoder};
  if (shares_embedding()) names.insert(names.begin(), "model.encoder.text_model.embed_tokens.weight");
  if (head_.tied()) names.emplace_back("lm_head.weight");
  return names;
}

std::unique_ptr<Model> make_t5gemma(const nlohmann::json& config, bool separate_head) {
  return std::make_unique<T5Gemma>(config, separate_head);
}

}  // namespace trainer
