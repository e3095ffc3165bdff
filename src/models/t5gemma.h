// T5Gemma (Zhang et al. 2025; Gemma 2's layers, and cross-attention with a softmax of its own) and T5Gemma 2
// (Gemma 3's layers; the decoder attends to itself and to the source in one softmax, with one set of
// projections). Shapes: B batch, S source, T target, D hidden_size, H heads, G key/value heads, K head_dim.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/models/model.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/output_head.h"

#include "models/decoder.h"
#include "models/encoded.h"
#include "models/kv_cache.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/grouped_rows.h"
#include "nn/norm.h"
#include "nn/residual_stream.h"
#include "nn/rotary.h"
#include "nn/seen_keys.h"

namespace trainer {

struct T5GemmaConfig {
  // Reads it from what read_model_config() returns. Throws FormatError, with the key, if a key is missing,
  // has the wrong type or asks for something that is not supported.
  explicit T5GemmaConfig(const nlohmann::json& config);

  bool second;  // T5Gemma 2
  DecoderConfig encoder, decoder;
  bool tied;          // the head is the embedding; in T5Gemma 2 that of both stacks
  int64_t eoi_token;  // T5Gemma 2: the token of the end of an image, which has a vector of its own
  int64_t pad_id, start_id;
  double dropout;

  const DecoderConfig& stack(bool of_decoder) const { return of_decoder ? decoder : encoder; }
  // What the sliding layers of a stack see.
  Sight sliding_sight(bool of_decoder) const;
};

// Samples whose attention is computed together: the rows of a padded batch, or groups of packed ones.
struct SampleGroups {
  AttentionGroups packed;                        // null: a padded batch
  std::vector<at::Tensor> masks, sliding_masks;  // of each group; undefined: everything is seen
};

// The values that all layers of a stack share in one forward pass.
struct T5GemmaPass {
  const ForwardContext* context = nullptr;
  const Model* model = nullptr;  // its hooks are called around layers
  double dropout = 0.0;          // 0 outside training
  at::Tensor rows, source_rows;  // dropout keys [B, seq], [B, S]
  Rotary::Tables rotary, sliding_rotary;
  SampleGroups own, with_source;  // of attention to the stack's own positions; of that to the source, too
  // In generation: where keys and values are cached, and those of the sources. In T5Gemma 2 the first
  // positions of a row are its source's: so many, int32 [rows].
  const CacheRows *cache_rows = nullptr, *cached_sources = nullptr;
  at::Tensor source_lengths;
};

// Keys and values of one layer of the decoder in generation. In T5Gemma 2 `self` begins with the source's.
struct T5GemmaCache {
  KvCache self, cross;
};

// What an attention layer attends to.
enum class AttendsTo { own, source, own_and_source };

class T5GemmaAttention : public Module {
 public:
  // `source_size`: the width of the source's states, which keys and values of AttendsTo::source are made of.
  T5GemmaAttention(const DecoderConfig& c, size_t layer, AttendsTo to, int64_t source_size);
  // x [B, seq, D] -> [B, seq, D]; source [B, S, D], unless it attends to its own positions only.
  at::Tensor forward(const LayerInput& x, const std::optional<at::Tensor>& source, const T5GemmaPass& pass,
                     T5GemmaCache* cache) const;

  // Keys and values of a source [B, S, D]: [B, G, S, K].
  std::pair<at::Tensor, at::Tensor> source_keys(const at::Tensor& source, const at::Tensor& rows,
                                                const ForwardContext& context) const;

  Linear q_proj, k_proj, v_proj, o_proj;

 private:
  AttentionInputs own_inputs(const LayerInput& x, const T5GemmaPass& pass) const;
  at::Tensor mix_cached(const AttentionInputs& in, const T5GemmaPass& pass, T5GemmaCache& cache) const;
  at::Tensor mix(AttentionInputs in, const std::optional<std::pair<at::Tensor, at::Tensor>>& of_source,
                 const T5GemmaPass& pass) const;
  at::Tensor attend(const AttentionInputs& in) const;

  AttendsTo to_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  int64_t head_dim_, window_;  // window 0: none
  double scale_, soft_cap_;
};

class T5GemmaLayer : public Module {
 public:
  T5GemmaLayer(const T5GemmaConfig& c, bool decoder, size_t layer);
  // x [B, seq, D]: adds what this layer adds; source [B, S, D] in the decoder.
  void forward(ResidualStream& x, const std::optional<at::Tensor>& source, const T5GemmaPass& pass,
               T5GemmaCache* cache = nullptr) const;
  // x [B, seq, D] -> [B, seq, D]
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& source,
                     const T5GemmaPass& pass) const;
  // The attention that sees the source.
  const T5GemmaAttention& of_source() const { return cross_attn_ ? *cross_attn_ : self_attn_; }

 private:
  // Adds the norm of what a part returned.
  void add_part(ResidualStream& x, const RmsNorm& norm, const at::Tensor& part,
                const T5GemmaPass& pass) const;

  T5GemmaAttention self_attn_;
  std::optional<T5GemmaAttention> cross_attn_;
  DecoderMlp mlp_;
  RmsNorm before_self_, after_self_, before_mlp_, after_mlp_;
  std::optional<RmsNorm> before_cross_, after_cross_;
};

class T5GemmaStack : public Module {
 public:
  // `shared`: the stack whose embedding this one uses; null: it has its own.
  T5GemmaStack(const T5GemmaConfig& c, bool decoder, const T5GemmaStack* shared);

  // ids [B, seq] -> [B, seq, D]
  at::Tensor embed(const at::Tensor& ids, at::ScalarType type) const;
  // Fills in the rotary tables for these positions, int64 [seq] or [batch, seq].
  void rotate(T5GemmaPass& pass, const at::Tensor& positions, const at::TensorOptions& options) const;
  // embedded [B, seq, D] -> [B, seq, D] before the last norm; the first `recompute` layers run again in
  // backward.
  at::Tensor forward(const at::Tensor& embedded, const std::optional<at::Tensor>& source, T5GemmaPass pass,
                     int64_t recompute) const;
  // The last norm, and dropout with these keys.
  at::Tensor finish(const at::Tensor& x, const at::Tensor& rows, const T5GemmaPass& pass) const;

  // Which masks the layers need.
  bool has_sliding() const;
  bool has_full() const;
  bool has_fixed_frequencies() const {
    return rotary_.has_fixed_frequencies() && (!sliding_rotary_ || sliding_rotary_->has_fixed_frequencies());
  }

  std::optional<Embedding> embed_tokens;
  std::vector<std::unique_ptr<T5GemmaLayer>> layers;

 private:
  uint64_t dropout_key(const char* site) const;

  DecoderConfig c_;
  int64_t eoi_token_;
  std::optional<Parameter> own_eoi_;
  const Parameter* eoi_ = nullptr;  // the vector of eoi_token_; null: it has none of its own
  RmsNorm norm_;
  Rotary rotary_;
  std::optional<Rotary> sliding_rotary_;
};

class T5Gemma : public Model {
 public:
  T5Gemma(const nlohmann::json& config, bool separate_head);

  at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const override;
  const OutputHead& head() const override { return head_; }
  std::unique_ptr<Generation> generate(at::Device device) const override;

  bool encoder_decoder() const override { return true; }
  int64_t num_blocks() const override { return c_.encoder.num_layers + c_.decoder.num_layers; }
  std::vector<Module*> blocks() override;
  std::vector<Parameter*> vocabulary() override;
  int64_t vocab_size() const override { return decoder_.embed_tokens->table().shape[0]; }
  void untie_head() override;
  std::vector<std::string> default_lora_targets() const override { return {"q_proj", "v_proj"}; }
  CollateOptions collate_options() const override { return {true, c_.pad_id, c_.start_id}; }
  std::vector<std::string> tied_names() const override;
  bool has_dropout() const override { return true; }
  double dropout() const override { return c_.dropout; }
  void set_dropout(double p) override { c_.dropout = p; }

 private:
  friend class T5GemmaGeneration;

  bool shares_embedding() const { return c_.second && c_.tied; }
  T5GemmaPass start(const ForwardContext& context, const at::Tensor& rows) const;
  // Packed sources that attend one by one have the same bits whatever the others are.
  enum class Sources { in_groups, one_by_one };
  Encoded encode(const MicroBatch& batch, const ForwardContext& context, int64_t recompute,
                 Sources sources = Sources::in_groups) const;
  // What the samples of a batch see in each kind of attention.
  void group_sources(T5GemmaPass& pass, const MicroBatch& batch, const at::Tensor& embedded,
                     Sources sources) const;
  void group_targets(T5GemmaPass& pass, const MicroBatch& batch, const at::Tensor& embedded) const;
  // Of the decoder: the keys of the source's rows, which in T5Gemma 2 go through the projections of its own.
  at::Tensor source_rows(const at::Tensor& rows) const;

  T5GemmaConfig c_;
  T5GemmaStack encoder_, decoder_;
  Module body_, whole_encoder_;  // "model"; T5Gemma 2: "encoder", of which its text model is loaded
  OutputHead head_;
};

}  // namespace trainer
