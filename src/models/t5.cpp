// Tested against transformers, models/{t5,mt5,umt5}/modeling_*.py.
#include "models/t5.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/formats/model_directory.h"
#include "trainer/models/score_head.h"

#include "base/random.h"
#include "models/t5_encoder.h"
#include "nn/checkpoint.h"
#include "nn/made_inputs.h"
#include "nn/score_head.h"
#include "nn/seen_keys.h"
#include "ops/dropout.h"
#include "ops/t5_attention.h"

namespace trainer {

T5FeedForward::T5FeedForward(const T5Config& c)
    : wi(c.d_model, c.d_ff, false), wo(c.d_ff, c.d_model, false), activation_(c.activation) {
  add(c.gated ? "wi_0" : "wi", wi);
  if (c.gated) add("wi_1", wi_1.emplace(c.d_model, c.d_ff, false));
  add("wo", wo);
}

LayerInput T5FeedForward::activated(const LayerInput& x, const T5Pass& pass) const {
  if (!wi_1) return activate(activation_, wi.forward(x, pass.rows, *pass.context));
  const std::vector<at::Tensor> gate_up =
      Linear::forward_together({&wi, &*wi_1}, x, pass.rows, *pass.context);
  return gated_input(activation_, gate_up[0], gate_up[1], *pass.context);
}

at::Tensor T5FeedForward::forward(const LayerInput& x, const T5Pass& pass) const {
  const LayerInput h = activated(x, pass);
  const uint64_t key = derive(name_key(), "inner");
  return wo.forward(dropped_input(h, pass.rows, key, pass.dropout), pass.rows, *pass.context);
}

template <class Part>
uint64_t T5Residual<Part>::dropout_key() const {
  return derive(name_key(), "out");
}

T5Block::T5Block(const T5Config& c, bool decoder, bool first)
    : self(c, "SelfAttention", first || c.bias_in_every_block, !decoder), feed_forward(c, "DenseReluDense") {
  add("layer.0", self);
  if (decoder) add("layer.1", cross.emplace(c, "EncDecAttention", false, true));
  add(decoder ? "layer.2" : "layer.1", feed_forward);
}

void T5Block::forward(ResidualStream& x, const std::optional<at::Tensor>& source, const T5Pass& pass,
                      T5BlockCache* cache) const {
  self.forward(x, pass, std::nullopt, pass, cache);
  if (cross) cross->forward(x, pass, source, pass, cache);
  feed_forward.forward(x, pass, pass);
}

at::Tensor T5Block::forward(const at::Tensor& x, const std::optional<at::Tensor>& source,
                            const T5Pass& pass) const {
  ResidualStream stream(x);
  forward(stream, source, pass);
  return stream.sum();
}

T5Stack::T5Stack(const T5Config& c, bool decoder)
    : final_layer_norm(c.d_model, c.epsilon),
      decoder_(decoder),
      bias_in_every_block_(c.bias_in_every_block),
      head_dim_(c.d_kv) {
  for (int64_t i = 0; i < (decoder ? c.decoder_layers : c.encoder_layers); i++) {
    blocks.push_back(std::make_unique<T5Block>(c, decoder, i == 0));
    add("block." + std::to_string(i), *blocks.back());
  }
  add("final_layer_norm", final_layer_norm);
}

void T5Stack::prepare(T5Pass& pass, const at::Tensor& embedded) const {
  const int64_t seq = embedded.size(1);
  const at::TensorOptions options = embedded.options().requires_grad(false);
  const RelativeBias& bias = *blocks[0]->self.part.relative_attention_bias;
  if (!bias_in_every_block_) pass.bias = &bias;
  pass.causal = decoder_;
  // A bias for each block would keep a matrix for each block.
  pass.recomputed =
      pass.dropout > 0 || ((bias.weight.trained() || bias_in_every_block_) && at::GradMode::is_enabled());
  if (pass.recomputed) {
    pass.buckets = bias.buckets(seq, seq, 0, embedded.device());
  } else {
    std::vector<at::Tensor> parts;
    if (pass.bias != nullptr) parts.push_back(bias.bias(seq, seq, 0, embedded.scalar_type()));
    if (decoder_ && seq > 1) parts.push_back(sliding_window_mask(seq, seq, seq, options));
    if (pass.lengths.defined()) parts.push_back(source_mask(pass.lengths, seq, options));
    for (const at::Tensor& part : parts) {
      pass.self_mask = pass.self_mask.defined() ? pass.self_mask + part : part;
    }
  }
  if (decoder_ && pass.source_lengths.defined() && pass.dropout == 0.0) {
    pass.cross_mask = source_mask(pass.source_lengths, pass.source_positions, options);
  }
}

void T5Stack::prepare_packed(T5Pass& pass, at::Device device) const {
  const RelativeBias& bias = *blocks[0]->self.part.relative_attention_bias;
  if (!bias_in_every_block_) pass.bias = &bias;
  pass.causal = decoder_;
  if (pass.one_kernel) {
    pass.buckets = bias.near_buckets(device);
    return;
  }
  int64_t longest = 1;
  for (const AttentionGroup& group : *pass.self_groups) longest = std::max(longest, group.queries.length);
  pass.buckets = bias.buckets(longest, longest, 0, device);
}

// Returns whether attention of heads of this size and with such a bias is one kernel there.
static bool attends_in_one_kernel(at::Device device, at::ScalarType type, int64_t head_dim,
                                  int64_t max_distance) {
  return takes_t5_attention(device, type, head_dim) && max_distance <= kFurthestBias;
}

at::Tensor T5Stack::forward(const at::Tensor& embedded, const std::optional<at::Tensor>& source, T5Pass pass,
                            int64_t recompute) const {
  const int64_t furthest = blocks[0]->self.part.relative_attention_bias->max_distance();
  pass.one_kernel = attends_in_one_kernel(embedded.device(), embedded.scalar_type(), head_dim_, furthest);
  if (pass.one_kernel || pass.self_groups) {
    prepare_packed(pass, embedded.device());
  } else {
    prepare(pass, embedded);
  }
  ResidualStream h(drop(embedded, pass, "in"));
  for (size_t i = 0; i < blocks.size(); i++) {
    const T5Block& block = *blocks[i];
    if (static_cast<int64_t>(i) < recompute) {
      h = ResidualStream(recomputed(block, h.sum(), source, pass));
    } else {
      const auto entered = pass.model->enter(block);
      // Each block gets its own alias, so that its gradients of the source are summed first, as in a
      // recomputed block. The bits are then the same with and without gradient checkpointing.
      block.forward(h, source ? std::optional(source->view_as(*source)) : std::nullopt, pass);
    }
  }
  return drop(h.normed(final_layer_norm), pass, "final");
}

// The weight of the shared bias is an input, so that its gradients of all blocks are summed before they are
// added to those of earlier micro-batches, as without recompute. The bits are then the same.
at::Tensor T5Stack::recomputed(const T5Block& block, const at::Tensor& hidden,
                               const std::optional<at::Tensor>& source, T5Pass pass) const {
  const ForwardContext& outer = *pass.context;
  const at::Tensor bias = pass.bias != nullptr ? pass.bias->weight.value.tensor() : at::Tensor();
  const auto run = [&block, pass, context = outer.in_recomputed_block()](
                       const at::Tensor& x, const std::vector<at::Tensor>& others) mutable {
    pass.context = &context;
    pass.bias_weight = others[1];
    const auto sources = others[0].defined() ? std::optional(others[0]) : std::nullopt;
    return std::vector{block.forward(x, sources, pass)};
  };
  return checkpoint_wide(hidden, {source.value_or(at::Tensor()), bias}, outer.anchor,
                         {run, pass.model->entering(block), outer.kept_inputs})[0];
}

at::Tensor T5Stack::drop(const at::Tensor& x, const T5Pass& pass, const char* site) const {
  return dropout(x, pass.rows, derive(name_key(), site), pass.dropout);
}

T5::T5(const nlohmann::json& config, bool separate_head)
    : Model(config),
      c_(config),
      shared_(c_.vocab_size, c_.d_model),
      encoder_embed_(&shared_),
      decoder_embed_(&shared_),
      encoder_(c_, false),
      decoder_(c_, true),
      head_(shared_.weight, {c_.scale_outputs ? std::pow(static_cast<double>(c_.d_model), -0.5) : 1.0}) {
  const auto scores = score_head_in(config);
  if (scores) prefix_ = "transformer.";
  add(prefix_ + "shared", shared_);
  encoder_.add("embed_tokens", encoder_embed_);
  decoder_.add("embed_tokens", decoder_embed_);
  add(prefix_ + "encoder", encoder_);
  add(prefix_ + "decoder", decoder_);
  if (scores) {
    add("classification_head", head_.score_with({.hidden_size = c_.d_model,
                                                 .outputs = scores->outputs(),
                                                 .numbers = scores->score == RowScore::number,
                                                 .two_layers = true,
                                                 .dropout = config_double(config, "classifier_dropout", 0)}));
  } else if (separate_head) {
    add("lm_head", head_.own_weight());
  }
  assign_names();
}

at::Tensor T5::supervised_states(const MicroBatch& batch, const ForwardContext& context) const {
  const int64_t encoder_recompute = std::min(context.recompute_blocks, c_.encoder_layers);
  const Encoded source = encode(batch, context, encoder_recompute);
  T5Pass pass;
  if (batch.packed) {
    const PackedTarget& target = *batch.packed_target;
    pass = start(context, row_keys(target.row.dropout_keys, target.row.positions));
    pass.self_groups = shared_groups(target.decoder);
    pass.cross_groups = shared_groups(target.cross);
    pass.starts = {target.row.starts, batch.packed->starts};
  } else {
    pass = start(context, row_keys(batch.dropout_keys, batch.decoder_input_ids.size(1)));
    pass.source_lengths = batch.input_lengths;
    pass.source_positions = batch.input_ids.size(1);
  }
  pass.source_rows = source.rows;
  const at::Tensor decoded =
      decoder_.forward(decoder_embed_.forward(batch.decoder_input_ids, dtype()), source.states, pass,
                       context.recompute_blocks - encoder_recompute);
  return head_.states(decoded.flatten(0, 1).index_select(0, batch.supervised_rows),
                      pass.rows.flatten().index_select(0, batch.supervised_rows), context);
}

// In the row of many samples nothing has to be moved for one kernel.
bool T5::packs_on_gpu() const { return packs_by_starts(c10::Device(c10::kCUDA, 0)); }

bool T5::packs_by_starts(at::Device device) const {
  return attends_in_one_kernel(device, dtype(), c_.d_kv, c_.max_distance);
}

void T5::untie_head() {
  if (!head_.tied() || head_.scores() != nullptr) return;
  add("lm_head", head_.own_weight());
  assign_names();
}

std::vector<Module*> T5::blocks() {
  std::vector<Module*> all;
  for (const T5Stack* stack : {&encoder_, &decoder_}) {
    for (const auto& block : stack->blocks) all.push_back(block.get());
  }
  return all;
}

CollateOptions T5::collate_options() const {
  return {.pad_id = c_.pad_id,
          .decoder_start_id = c_.decoder_start_id,
          .targets_are_sources = head_.scores() != nullptr,
          .in_one_kernel = [this](at::Device device) { return packs_by_starts(device); }};
}

std::vector<std::string> T5::tied_names() const {
  std::vector<std::string> names{prefix_ + "shared.weight", prefix_ + "encoder.embed_tokens.weight",
                                 prefix_ + "decoder.embed_tokens.weight"};
  if (head_.tied() && head_.scores() == nullptr) names.push_back("lm_head.weight");
  return names;
}

T5Pass T5::start(const ForwardContext& context, const at::Tensor& rows) const {
  T5Pass pass;
  pass.context = &context;
  pass.model = this;
  pass.dropout = context.training ? c_.dropout : 0.0;
  pass.rows = rows;
  return pass;
}

Encoded T5::encode(const MicroBatch& batch, const ForwardContext& context, int64_t recompute) const {
  T5Pass pass = start(context, batch.packed ? row_keys(batch.packed->dropout_keys, batch.packed->positions)
                                            : row_keys(batch.dropout_keys, batch.input_ids.size(1)));
  if (batch.packed) {
    pass.self_groups = shared_groups(batch.packed_target->encoder);
    pass.starts.queries = batch.packed->starts;
  } else {
    pass.lengths = batch.input_lengths;
  }
  const at::Tensor embedded =
      noisy(encoder_embed_.forward(batch.input_ids, dtype()), batch, pass.rows, context);
  return {encoder_.forward(embedded, std::nullopt, pass, recompute), pass.rows};
}

std::unique_ptr<Model> make_t5(const nlohmann::json& config, bool separate_head) {
  const auto scores = score_head_in(config);
  if (scores && scores->encoder_only) return std::make_unique<T5Encoder>(config, *scores);
  return std::make_unique<T5>(config, separate_head);
}

}  // namespace trainer
