// The structure that Llama and its relatives share; DecoderConfig holds the differences. Shapes: B batch, S
// sequence, D hidden_size, H num_attention_heads, G num_key_value_heads, K head_dim.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/nn/linear.h"
#include "trainer/nn/output_head.h"

#include "models/decoder_config.h"
#include "models/kv_cache.h"
#include "nn/attention.h"
#include "nn/capped_attention.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/projections.h"
#include "nn/residual_stream.h"

namespace trainer {

class PerLayerInputs;
class PerLayerGate;

// Keys and values [B, G, keys, K] that several layers attend to.
struct SharedKeys {
  at::Tensor k, v;
};

// The values that all layers share in one forward pass, and what is given to the next layer.
struct DecoderPass {
  const ForwardContext* context;
  at::Tensor rows;                  // dropout keys [B, S]
  Rotary::Tables rotary{};          // for the positions of this pass
  Rotary::Tables sliding_rotary{};  // for sliding layers
  // What queries are multiplied with after the rotation, broadcastable to [B, H, S, K]; undefined: nothing.
  at::Tensor query_growth{};
  at::Tensor ones{};  // of norms of values, one for each value of the widest head; undefined: there are none
  // Of sliding layers, if a position is outside the window of another. Additive, broadcastable to [B, H, S,
  // keys].
  at::Tensor window_mask{};
  // In generation: where everything is cached. The pass has a token more for each row, or the whole rows from
  // `first_row` on.
  const CacheRows* cache_rows = nullptr;
  std::optional<int64_t> first_row{};
  // With packing: the sequences of the row; then there are no masks.
  std::optional<Sequences> packed{};
  std::vector<int64_t> lengths{};  // of padded rows
  bool has_one_token() const { return cache_rows != nullptr && !first_row; }
  // Of the next layer (layer_extras.h): its embedding of each token, [B, S, per_layer_size]; the keys of an
  // earlier layer that it uses; where its own go if others use them.
  at::Tensor layer_input{};
  SharedKeys shared{};
  SharedKeys* stores = nullptr;
};

// The part of a layer in which positions see each other (DecoderConfig::mixer).
class Mixer : public Module {
 public:
  // x [B, S, D] -> [B, S, D], causal. The cache gets x as the pass says: new rows, or a position for each
  // row.
  virtual at::Tensor forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const = 0;
  virtual const char* name_in_layer() const = 0;  // on disk
  virtual std::vector<std::string> default_lora_targets() const = 0;
};

class DecoderAttention : public Mixer {
 public:
  DecoderAttention(const DecoderConfig& c, size_t layer);
  at::Tensor forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const override;
  const char* name_in_layer() const override { return "self_attn"; }
  std::vector<std::string> default_lora_targets() const override;

 private:
  // The heads of x, and the gate of each head if the layer has one, [B, S, H, K].
  std::pair<AttentionInputs, at::Tensor> inputs(const LayerInput& x, const DecoderPass& pass) const;
  // Fills in the heads of queries and keys, with their norms and the rotary embedding: q and k [B, S, heads *
  // K], or already [B, S, heads, K] -> [B, heads, S, K]. `beside`: values [B, S, G * K] that keeps_beside()
  // the others, whose heads are filled in, too; else undefined.
  void position(AttentionInputs& in, const at::Tensor& q, const at::Tensor& k, const at::Tensor& beside,
                const DecoderPass& pass) const;
  bool keeps_beside(const std::vector<at::Tensor>& qkv) const;
  // [B, S, G * K] -> [B, G, S, K], with their norm
  at::Tensor values(const at::Tensor& v, const DecoderPass& pass) const;

  // A new token of each row to what the cache has: [B, 1, H, K].
  at::Tensor mix_cached(const AttentionInputs& in, const DecoderPass& pass, KvCache& cache) const;
  // Whether capped_attention() attends, which knows windows itself.
  bool in_chunks(const at::Tensor& q) const { return soft_cap_ > 0 || is_too_wide_for_fused(q); }
  // The queries, and the keys and values of an earlier layer.
  AttentionInputs with_shared_keys(const at::Tensor& q, const DecoderPass& pass) const;
  void keep_keys(const AttentionInputs& in, const DecoderPass& pass, KvCache* cache) const;
  // Attends to the keys as the pass needs it: padded rows or packed rows.
  at::Tensor mix(const AttentionInputs& in, const DecoderPass& pass) const;

  Projections qkv_;
  Linear o_proj_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  std::optional<double> value_norm_;  // its epsilon
  int64_t head_dim_, window_;         // window 0: none
  bool rotated_, gated_, norms_whole_, rotates_neighbours_, keys_are_values_, shares_keys_;
  int64_t rotary_dim_;
  double scale_, soft_cap_;
};

// The part of a layer that works on each position alone (DecoderConfig::feed_forward).
class FeedForward : public Module {
 public:
  // x [B, S, D] -> [B, S, D]
  virtual at::Tensor forward(const LayerInput& x, const DecoderPass& pass) const = 0;
  virtual const char* name_in_layer() const = 0;  // on disk
};

class DecoderMlp : public FeedForward {
 public:
  DecoderMlp(const DecoderConfig& c, int64_t width);
  at::Tensor forward(const LayerInput& x, const DecoderPass& pass) const override;
  // The same with dropout between gate and down_proj, as in T5Gemma.
  at::Tensor forward(const LayerInput& x, const at::Tensor& rows, const ForwardContext& context,
                     double dropout) const;
  const char* name_in_layer() const override { return name_.c_str(); }

 private:
  std::string name_;
  Projections gate_up_;
  Linear down_proj_;
  Activation activation_;
};

class DecoderLayer : public Module {
 public:
  DecoderLayer(const DecoderConfig& c, size_t layer);
  ~DecoderLayer() override;
  // x [B, S, D]: adds what this layer adds.
  void forward(ResidualStream& x, const DecoderPass& pass, KvCache* cache = nullptr) const;
  // x [B, S, D] -> [B, S, D]
  at::Tensor forward(const at::Tensor& x, const DecoderPass& pass) const;

  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<FeedForward> feed_forward;
  std::optional<RmsNorm> before_attention, after_attention, before_mlp, after_mlp;

 private:
  // Adds what a part of the layer returned to the stream.
  void add_part(ResidualStream& x, const std::optional<RmsNorm>& norm, const at::Tensor& part) const;

  double residual_scale_;
  std::unique_ptr<PerLayerGate> per_layer_;
  std::optional<Parameter> layer_scalar_;  // [1]: multiplies the layer's result
};

// The module DecoderConfig::body in the names on disk.
struct DecoderBody : Module {
  explicit DecoderBody(const DecoderConfig& c);
  ~DecoderBody() override;

  Embedding embed_tokens;
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  RmsNorm norm;
  std::unique_ptr<PerLayerInputs> per_layer;
};

class Decoder : public Model {
 public:
  Decoder(const nlohmann::json& config, const DecoderConfig& facts, bool separate_head);

  at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const override;
  const OutputHead& head() const override { return head_; }
  std::unique_ptr<Generation> generate(at::Device device) const override;

  bool encoder_decoder() const override { return false; }
  int64_t num_blocks() const override { return c_.num_layers; }
  std::vector<Module*> blocks() override;
  std::vector<Parameter*> vocabulary() override { return head_.tables(); }
  int64_t vocab_size() const override { return body_.embed_tokens.weight.shape[0]; }
  void untie_head() override;
  bool share_adapter_with_head() override;
  std::vector<std::string> default_lora_targets() const override;
  CollateOptions collate_options() const override { return {false, std::max<int64_t>(c_.padding_idx, 0), 0}; }
  std::vector<std::string> tied_names() const override;
  bool packs_on_gpu() const override;
  bool packs_by_starts(at::Device device) const override;

 private:
  friend class DecoderGeneration;

  at::Tensor embed(const at::Tensor& ids) const;
  // Fills in the rotary tables for these positions.
  void rotate(DecoderPass& pass, const at::Tensor& positions, const std::vector<int64_t>& lengths,
              const at::TensorOptions& options) const;
  // A pass over the embedded tokens h [B, S, D] at these positions, int64 [S] or [B, S]. The lengths of the
  // sequences include these tokens.
  DecoderPass start(const ForwardContext& context, const at::Tensor& dropout_keys, const at::Tensor& h,
                    const at::Tensor& positions, const std::vector<int64_t>& lengths) const;
  DecoderPass start(const ForwardContext& context, const MicroBatch& batch, const at::Tensor& h) const;

  DecoderConfig c_;
  DecoderBody body_;
  Rotary rotary_;
  std::optional<Rotary> sliding_rotary_;
  OutputHead head_;
};

}  // namespace trainer
