// T5 (Raffel et al. 2019), v1.0 (relu, tied head), v1.1, FLAN-T5 and mT5 (gated gelu, separate head).
// Held against transformers, models/t5/modeling_t5.py. Shapes: B batch, S source, T target, D d_model,
// H num_heads, K d_kv. It is over 400 lines because a model is one file, which reads like its paper.
#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/models/registry.h"
#include "trainer/nn/attention.h"
#include "trainer/nn/checkpoint.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/norm.h"

namespace trainer {
namespace {

struct T5Config {
  explicit T5Config(const nlohmann::json& c)
      : vocab_size(config_size(c, "vocab_size")),
        d_model(config_size(c, "d_model")),
        d_kv(config_size(c, "d_kv")),
        d_ff(config_size(c, "d_ff")),
        num_heads(config_size(c, "num_heads")),
        encoder_layers(config_size(c, "num_layers")),
        decoder_layers(config_size(c, "num_decoder_layers", encoder_layers)),
        num_buckets(config_size(c, "relative_attention_num_buckets", 32)),
        max_distance(config_size(c, "relative_attention_max_distance", 128)),
        pad_id(config_int(c, "pad_token_id", 0)),
        decoder_start_id(config_int(c, "decoder_start_token_id", pad_id)),
        epsilon(config_double(c, "layer_norm_epsilon", 1e-6)),
        dropout(config_double(c, "dropout_rate", 0.1)),
        // mT5 never scales, whatever its flags say
        scale_outputs(c.at("model_type") == "t5" &&
                      config_bool(c, "scale_decoder_outputs", config_bool(c, "tie_word_embeddings", true))) {
    std::string activation = config_string(c, "feed_forward_proj", "relu");
    gated = activation.starts_with("gated-");
    if (gated) activation = activation.substr(6);
    if (activation == "relu") {
      activate = [](const at::Tensor& x) { return at::relu(x); };
    } else if (activation == "gelu" || activation == "gelu_new") {
      // "gated-gelu" has always meant the tanh form; plain "gelu" the exact one
      const bool tanh = gated || activation == "gelu_new";
      activate = [tanh](const at::Tensor& x) { return at::gelu(x, tanh ? "tanh" : "none"); };
    } else if (activation == "silu") {
      activate = [](const at::Tensor& x) { return at::silu(x); };
    } else {
      throw FormatError(
          concat("config.json: feed_forward_proj '", config_string(c, "feed_forward_proj", ""),
                 "' is not supported (supported: relu, gelu, silu, gelu_new, each also with gated-)"));
    }
  }

  int64_t vocab_size, d_model, d_kv, d_ff, num_heads, encoder_layers, decoder_layers, num_buckets,
      max_distance, pad_id, decoder_start_id;
  double epsilon, dropout;
  bool scale_outputs, gated = false;
  std::function<at::Tensor(const at::Tensor&)> activate;
};

// Keys and values of one attention of one layer while generating.
struct LayerCache {
  at::Tensor k, v;
};

// What all blocks of a stack share in one forward pass.
struct StackPass {
  const ForwardContext* context = nullptr;
  double dropout = 0.0;          // 0 outside training
  at::Tensor rows, source_rows;  // dropout keys [B, seq], [B, S]
  at::Tensor lengths;            // of this stack's own sequences; undefined in the decoder (causal does it)
  at::Tensor source_lengths;     // for cross-attention
  at::Tensor self_mask, cross_mask;  // for SDPA, when there is no dropout and the bias is frozen
  bool recomputed = false;           // attention by our own Function
  const RelativeBias* bias = nullptr;
  at::Tensor buckets;
  bool causal = false;
};

class Attention : public Module {
 public:
  Attention(const T5Config& c, bool has_bias, bool bidirectional)
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

  // x [B, seq, D] -> [B, seq, D]; `source` [B, S, D]: cross-attention.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& source, const StackPass& pass,
                     LayerCache* cache = nullptr) const {
    AttentionInputs in;
    in.q = split(q.forward(x, pass.rows, *pass.context));
    if (cache != nullptr && source && cache->k.defined()) {
      in.k = cache->k;
      in.v = cache->v;
    } else {
      const at::Tensor& from = source ? *source : x;
      const at::Tensor& from_rows = source ? pass.source_rows : pass.rows;
      in.k = split(k.forward(from, from_rows, *pass.context));
      in.v = split(v.forward(from, from_rows, *pass.context));
      if (cache != nullptr && cache->k.defined()) {
        in.k = at::cat({cache->k, in.k}, 2);
        in.v = at::cat({cache->v, in.v}, 2);
      }
      if (cache != nullptr) *cache = {in.k, in.v};
    }
    const at::Tensor mixed = source ? mix_cross(in, pass) : mix_self(in, pass);
    return o.forward(mixed.transpose(1, 2).flatten(2), pass.rows, *pass.context);
  }

  Linear q, k, v, o;
  std::optional<RelativeBias> relative_attention_bias;

 private:
  at::Tensor split(const at::Tensor& x) const { return x.unflatten(2, {heads_, -1}).transpose(1, 2); }

  BiasAndDropout extra(const StackPass& pass) const {
    BiasAndDropout extra;
    extra.row_keys = pass.rows;
    extra.key = derive(pass.context->random_key ^ name_key(), "weights");
    extra.p = pass.dropout;
    return extra;
  }

  at::Tensor mix_self(AttentionInputs& in, const StackPass& pass) const {
    if (!pass.recomputed) {
      in.mask = pass.self_mask;
      return attention(in);
    }
    in.causal = pass.causal;
    BiasAndDropout with = extra(pass);
    with.bias_weight = pass.bias->weight.as(in.q.scalar_type());
    with.bias_buckets = pass.buckets;
    with.key_lengths = pass.lengths;
    return attention_recomputed(in, with);
  }

  at::Tensor mix_cross(AttentionInputs& in, const StackPass& pass) const {
    if (pass.dropout == 0.0) {
      in.mask = pass.cross_mask;
      return attention(in);
    }
    BiasAndDropout with = extra(pass);
    with.key_lengths = pass.source_lengths;
    return attention_recomputed(in, with);
  }

  int64_t heads_;
};

class FeedForward : public Module {
 public:
  explicit FeedForward(const T5Config& c)
      : wi(c.d_model, c.d_ff, false), wo(c.d_ff, c.d_model, false), activate_(c.activate) {
    add(c.gated ? "wi_0" : "wi", wi);
    if (c.gated) add("wi_1", wi_1.emplace(c.d_model, c.d_ff, false));
    add("wo", wo);
  }

  at::Tensor forward(const at::Tensor& x, const StackPass& pass) const {
    at::Tensor h = activate_(wi.forward(x, pass.rows, *pass.context));
    if (wi_1) h = h * wi_1->forward(x, pass.rows, *pass.context);
    h = dropout(h, pass.rows, derive(pass.context->random_key ^ name_key(), "inner"), pass.dropout);
    return wo.forward(h, pass.rows, *pass.context);
  }

  Linear wi, wo;
  std::optional<Linear> wi_1;

 private:
  std::function<at::Tensor(const at::Tensor&)> activate_;
};

// x + dropout(f(norm(x))): one of a block's two or three parts. `f` has the name that it has on disk.
template <class Part>
class Residual : public Module {
 public:
  template <class... Args>
  Residual(const T5Config& c, const std::string& part_name, const Args&... args)
      : part(c, args...), layer_norm(c.d_model, c.epsilon) {
    add(part_name, part);
    add("layer_norm", layer_norm);
  }
  template <class... Args>
  at::Tensor forward(const at::Tensor& x, const StackPass& pass, Args&&... args) const {
    const at::Tensor out = part.forward(layer_norm.forward(x), std::forward<Args>(args)...);
    return x + dropout(out, pass.rows, derive(pass.context->random_key ^ name_key(), "out"), pass.dropout);
  }
  Part part;
  RmsNorm layer_norm;
};

struct BlockCache {
  LayerCache self, cross;
};

class Block : public Module {
 public:
  Block(const T5Config& c, bool decoder, bool first)
      : self(c, "SelfAttention", first, !decoder), feed_forward(c, "DenseReluDense") {
    add("layer.0", self);
    if (decoder) add("layer.1", cross.emplace(c, "EncDecAttention", false, true));
    add(decoder ? "layer.2" : "layer.1", feed_forward);
  }

  // x [B, seq, D]; source [B, S, D] in the decoder
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& source, const StackPass& pass,
                     BlockCache* cache = nullptr) const {
    at::Tensor h = self.forward(x, pass, std::nullopt, pass, cache != nullptr ? &cache->self : nullptr);
    if (cross) h = cross->forward(h, pass, source, pass, cache != nullptr ? &cache->cross : nullptr);
    return feed_forward.forward(h, pass, pass);
  }

  Residual<Attention> self;
  std::optional<Residual<Attention>> cross;
  Residual<FeedForward> feed_forward;
};

// Additive mask [B, 1, 1, keys]: 0 up to each length, -inf after.
at::Tensor padding_mask(const at::Tensor& lengths, int64_t keys, at::ScalarType type) {
  const at::Tensor padded = at::arange(keys, lengths.options()).ge(lengths.view({-1, 1, 1, 1}));
  return at::zeros(padded.sizes(), lengths.options().dtype(type)).masked_fill_(padded, -INFINITY);
}

class Stack : public Module {
 public:
  Stack(const T5Config& c, bool decoder) : final_layer_norm(c.d_model, c.epsilon), decoder_(decoder) {
    for (int64_t i = 0; i < (decoder ? c.decoder_layers : c.encoder_layers); i++) {
      blocks.push_back(std::make_unique<Block>(c, decoder, i == 0));
      add("block." + std::to_string(i), *blocks.back());
    }
    add("final_layer_norm", final_layer_norm);
  }

  // Fills in what depends on the sequences: `keys` of them all told, of which the last `queries` are new.
  void prepare(StackPass& pass, const at::Tensor& embedded, int64_t keys) const {
    const int64_t queries = embedded.size(1);
    const RelativeBias& bias = *blocks[0]->self.part.relative_attention_bias;
    pass.bias = &bias;
    pass.causal = decoder_;
    pass.recomputed = pass.dropout > 0 || (bias.weight.trained() && at::GradMode::is_enabled());
    if (pass.recomputed) {
      pass.buckets = bias.buckets(queries, keys, keys - queries, embedded.device());
    } else {
      pass.self_mask = bias.bias(queries, keys, keys - queries, embedded.scalar_type());
      if (decoder_ && queries > 1) {
        const at::Tensor future =
            at::ones({queries, keys}, pass.self_mask.options().dtype(at::kBool)).triu_(1);
        pass.self_mask = pass.self_mask.masked_fill(future, -INFINITY);
      }
      if (pass.lengths.defined()) {
        pass.self_mask = pass.self_mask + padding_mask(pass.lengths, keys, embedded.scalar_type());
      }
    }
    if (decoder_ && pass.source_lengths.defined() && pass.dropout == 0.0) {
      pass.cross_mask = padding_mask(pass.source_lengths, pass.source_rows.size(1), embedded.scalar_type());
    }
  }

  // embedded [B, seq, D] -> [B, seq, D]; of all blocks the first `recompute` run again in backward.
  at::Tensor forward(const at::Tensor& embedded, const std::optional<at::Tensor>& source, StackPass pass,
                     int64_t recompute) const {
    prepare(pass, embedded, embedded.size(1));
    at::Tensor h = drop(embedded, pass, "in");
    for (size_t i = 0; i < blocks.size(); i++) {
      const Block& block = *blocks[i];
      if (static_cast<int64_t>(i) < recompute) {
        h = checkpoint(
            h, source, pass.context->anchor,
            [&block, pass, context = *pass.context](const at::Tensor& x, const auto& other) mutable {
              pass.context = &context;
              return block.forward(x, other, pass);
            });
      } else {
        // An alias of its own, so that a block's gradients of the source are summed first, as in a recomputed
        // block: the same bits either way.
        h = block.forward(h, source ? std::optional(source->view_as(*source)) : std::nullopt, pass);
      }
    }
    return drop(final_layer_norm.forward(h), pass, "final");
  }

  std::vector<std::unique_ptr<Block>> blocks;
  RmsNorm final_layer_norm;

 private:
  at::Tensor drop(const at::Tensor& x, const StackPass& pass, const char* site) const {
    return dropout(x, pass.rows, derive(pass.context->random_key ^ name_key(), site), pass.dropout);
  }

  bool decoder_;
};

struct Embedding : Module {
  Embedding(int64_t rows, int64_t size) : weight({rows, size}) { add("weight", weight); }
  Parameter weight;
};

class T5 : public Model {
 public:
  T5(const nlohmann::json& json, bool separate_head)
      : Model(json), c_(json), shared_(c_.vocab_size, c_.d_model), encoder_(c_, false), decoder_(c_, true) {
    add("shared", shared_);
    add("encoder", encoder_);
    add("decoder", decoder_);
    if (separate_head) add("lm_head", lm_head_.emplace(c_.d_model, c_.vocab_size, false));
    assign_names();
  }

  at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const override {
    const at::Tensor source_rows = row_keys(batch.slots, batch.input_ids.size(1));
    const int64_t encoder_recompute = std::min(context.recompute_blocks, c_.encoder_layers);
    const at::Tensor encoded =
        encode(batch.input_ids, batch.input_lengths, source_rows, context, encoder_recompute);

    StackPass pass = start(context, row_keys(batch.slots, batch.decoder_input_ids.size(1)));
    pass.source_rows = source_rows;
    pass.source_lengths = batch.input_lengths;
    const at::Tensor decoded = decoder_.forward(embed(batch.decoder_input_ids), encoded, pass,
                                                context.recompute_blocks - encoder_recompute);
    return scaled(decoded.flatten(0, 1).index_select(0, batch.supervised_rows));
  }
  at::Tensor output_weight() const override {
    return (lm_head_ ? lm_head_->weight : shared_.weight).as(dtype());
  }

  std::unique_ptr<Generation> generate(const at::Tensor& input_ids, const at::Tensor& lengths) const override;

  bool encoder_decoder() const override { return true; }
  int64_t num_blocks() const override { return c_.encoder_layers + c_.decoder_layers; }
  int64_t vocab_size() const override { return c_.vocab_size; }
  std::vector<std::string> default_lora_targets() const override { return {"q", "v"}; }
  CollateOptions collate_options() const override { return {true, c_.pad_id, c_.decoder_start_id}; }
  std::vector<std::string> tied_names() const override {
    std::vector<std::string> names{"shared.weight", "encoder.embed_tokens.weight",
                                   "decoder.embed_tokens.weight"};
    if (!lm_head_) names.push_back("lm_head.weight");
    return names;
  }
  bool has_dropout() const override { return true; }
  double dropout() const override { return c_.dropout; }
  void set_dropout(double p) override { c_.dropout = p; }

 private:
  friend class T5Generation;

  at::Tensor embed(const at::Tensor& ids) const {
    return at::embedding(shared_.weight.value, ids).to(dtype());
  }
  at::Tensor scaled(const at::Tensor& hidden) const {
    return c_.scale_outputs ? hidden * std::pow(static_cast<double>(c_.d_model), -0.5) : hidden;
  }

  StackPass start(const ForwardContext& context, const at::Tensor& rows) const {
    StackPass pass;
    pass.context = &context;
    pass.dropout = context.training ? c_.dropout : 0.0;
    pass.rows = rows;
    return pass;
  }

  // [B, S] -> [B, S, D]
  at::Tensor encode(const at::Tensor& ids, const at::Tensor& lengths, const at::Tensor& rows,
                    const ForwardContext& context, int64_t recompute) const {
    StackPass pass = start(context, rows);
    pass.lengths = lengths;
    return encoder_.forward(embed(ids), std::nullopt, pass, recompute);
  }

  T5Config c_;
  Embedding shared_;
  Stack encoder_, decoder_;
  std::optional<Linear> lm_head_;
};

class T5Generation : public Generation {
 public:
  T5Generation(const T5& model, const at::Tensor& ids, const at::Tensor& lengths)
      : model_(model), slots_(at::arange(ids.size(0), ids.options())), lengths_(lengths) {
    source_rows_ = row_keys(slots_, ids.size(1));
    encoded_ = model_.encode(ids, lengths, source_rows_, context_, 0);
    caches_.resize(model_.decoder_.blocks.size());
  }

  at::Tensor next_logits(const at::Tensor& tokens) override {
    StackPass pass = model_.start(context_, row_keys(slots_, tokens.size(1)));
    pass.source_rows = source_rows_;
    pass.source_lengths = lengths_;
    at::Tensor h = model_.embed(tokens);
    position_ += tokens.size(1);
    model_.decoder_.prepare(pass, h, position_);
    for (size_t i = 0; i < caches_.size(); i++) {
      h = model_.decoder_.blocks[i]->forward(h, encoded_, pass, &caches_[i]);
    }
    h = model_.scaled(model_.decoder_.final_layer_norm.forward(h.select(1, -1)));
    return at::linear(h, model_.output_weight()).to(at::kFloat);
  }

 private:
  const T5& model_;
  ForwardContext context_;
  at::Tensor slots_, lengths_, source_rows_, encoded_;
  std::vector<BlockCache> caches_;
  int64_t position_ = 0;
};

std::unique_ptr<Generation> T5::generate(const at::Tensor& input_ids, const at::Tensor& lengths) const {
  return std::make_unique<T5Generation>(*this, input_ids, lengths);
}

}  // namespace

std::unique_ptr<Model> make_t5(const nlohmann::json& config, bool separate_head) {
  return std::make_unique<T5>(config, separate_head);
}

}  // namespace trainer
