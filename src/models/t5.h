// T5 (Raffel et al. 2019): v1.0 (relu, tied head), v1.1, FLAN-T5 and mT5 (gated gelu, separate head), UMT5 (a
// position bias in every block). Shapes: B batch, S source, T target, D d_model, H num_heads, K d_kv.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/models/model.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/output_head.h"

#include "models/encoded.h"
#include "models/kv_cache.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/grouped_rows.h"
#include "nn/norm.h"
#include "nn/residual_stream.h"
#include "ops/activation.h"

namespace trainer {

struct T5Config {
  // Reads it from config.json. Throws FormatError, with the key, if a key is missing, has the wrong type or
  // asks for something that is not supported.
  explicit T5Config(const nlohmann::json& config);

  int64_t vocab_size, d_model, d_kv, d_ff, num_heads, encoder_layers, decoder_layers, num_buckets,
      max_distance, pad_id, decoder_start_id;
  double epsilon, dropout;
  bool scale_outputs;        // the decoder's outputs are multiplied by d_model^-0.5
  bool bias_in_every_block;  // UMT5; otherwise all blocks use the first block's position bias
  bool gated;                // wi_0 and wi_1 instead of wi
  Activation activation;
};

// The values that all blocks of a stack share in one forward pass.
struct T5Pass {
  const ForwardContext* context = nullptr;
  const Model* model = nullptr;  // its hooks are called around blocks
  double dropout = 0.0;          // 0 outside training
  at::Tensor rows, source_rows;  // dropout keys [B, seq], [B, S]
  at::Tensor lengths;            // of this stack's own sequences; undefined in the decoder (causal mask)
  // For cross-attention: lengths, and positions of each source with padding.
  at::Tensor source_lengths;
  int64_t source_positions = 0;
  // For SDPA, if there is no dropout and the bias is frozen. The first mask contains the shared position
  // bias; it is undefined if nothing is masked and there is no bias.
  at::Tensor self_mask, cross_mask;
  bool recomputed = false;             // attention_recomputed() instead of SDPA
  const RelativeBias* bias = nullptr;  // shared; nullptr if every block has its own
  at::Tensor bias_weight;              // of the shared one, where a block is given it
  at::Tensor buckets;
  bool causal = false;
  // In generation: where keys and values are cached, and those of the sources.
  const CacheRows *cache_rows = nullptr, *cached_sources = nullptr;
  bool one_kernel = false;  // attention_in_one_kernel(), with `buckets` of near distances
  // Packed samples: B is 1, and what masks and lengths say otherwise is said by their starts, of this stack's
  // sequences and of the sources, or by these groups.
  SampleStarts starts;
  AttentionGroups self_groups, cross_groups;
};

// Keys and values of one block of the decoder in generation; those of the source do not change.
struct T5BlockCache {
  KvCache self, cross;
  at::Tensor bias;  // by distance (CachedScores)
};

class T5Attention : public Module {
 public:
  T5Attention(const T5Config& c, bool has_bias, bool bidirectional);
  // x [B, seq, D] -> [B, seq, D]; `source` [B, S, D]: cross-attention.
  at::Tensor forward(const LayerInput& x, const std::optional<at::Tensor>& source, const T5Pass& pass,
                     T5BlockCache* cache) const;

  // Keys and values of a source [B, S, D]: [B, H, S, K].
  std::pair<at::Tensor, at::Tensor> source_keys(const at::Tensor& source, const at::Tensor& rows,
                                                const ForwardContext& context) const;

  Linear q, k, v, o;
  std::optional<RelativeBias> relative_attention_bias;

 private:
  at::Tensor mix_cached(const at::Tensor& x, bool cross, const T5Pass& pass, T5BlockCache& cache) const;
  at::Tensor split(const at::Tensor& x) const;
  AttentionInputs self_inputs(const LayerInput& x, const T5Pass& pass) const;
  AttentionInputs cross_inputs(const LayerInput& x, const at::Tensor& source, const T5Pass& pass) const;
  at::Tensor mix_rows(const LayerInput& x, const std::optional<at::Tensor>& source, const T5Pass& pass) const;
  BiasAndDropout extra(const T5Pass& pass) const;
  void add_bias(BiasAndDropout& to, const T5Pass& pass, at::ScalarType type) const;
  at::Tensor mix_self(AttentionInputs in, const T5Pass& pass) const;
  at::Tensor mix_cross(AttentionInputs in, const T5Pass& pass) const;

  int64_t heads_;
};

class T5FeedForward : public Module {
 public:
  explicit T5FeedForward(const T5Config& c);
  // x [B, seq, D] -> [B, seq, D]
  at::Tensor forward(const LayerInput& x, const T5Pass& pass) const;

  Linear wi, wo;
  std::optional<Linear> wi_1;

 private:
  LayerInput activated(const LayerInput& x, const T5Pass& pass) const;

  Activation activation_;
};

// x + dropout(part(norm(x))): one of a block's two or three parts. The part is named as on disk.
template <class Part>
class T5Residual : public Module {
 public:
  template <class... Args>
  T5Residual(const T5Config& c, const std::string& part_name, const Args&... args)
      : part(c, args...), layer_norm(c.d_model, c.epsilon) {
    add(part_name, part);
    add("layer_norm", layer_norm);
  }
  template <class... Args>
  void forward(ResidualStream& x, const T5Pass& pass, Args&&... args) const {
    x.add(part.forward(x.input(layer_norm, *pass.context), std::forward<Args>(args)...), pass.rows,
          dropout_key(), pass.dropout);
  }
  Part part;
  RmsNorm layer_norm;

 private:
  uint64_t dropout_key() const;
};

class T5Block : public Module {
 public:
  T5Block(const T5Config& c, bool decoder, bool first);
  // x [B, seq, D]: adds what this block adds; source [B, S, D] in the decoder
  void forward(ResidualStream& x, const std::optional<at::Tensor>& source, const T5Pass& pass,
               T5BlockCache* cache = nullptr) const;
  // x [B, seq, D] -> [B, seq, D]
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& source, const T5Pass& pass) const;

  T5Residual<T5Attention> self;
  std::optional<T5Residual<T5Attention>> cross;
  T5Residual<T5FeedForward> feed_forward;
};

class T5Stack : public Module {
 public:
  T5Stack(const T5Config& c, bool decoder);
  // Fills in what depends on the sequences, `embedded` [B, seq, D]; prepare_packed(): of packed ones, and of
  // all for one kernel.
  void prepare(T5Pass& pass, const at::Tensor& embedded) const;
  void prepare_packed(T5Pass& pass, at::Device device) const;
  // embedded [B, seq, D] -> [B, seq, D]; the first `recompute` blocks run again in backward.
  at::Tensor forward(const at::Tensor& embedded, const std::optional<at::Tensor>& source, T5Pass pass,
                     int64_t recompute) const;

  std::vector<std::unique_ptr<T5Block>> blocks;
  RmsNorm final_layer_norm;

 private:
  at::Tensor recomputed(const T5Block& block, const at::Tensor& hidden,
                        const std::optional<at::Tensor>& source, T5Pass pass) const;
  at::Tensor drop(const at::Tensor& x, const T5Pass& pass, const char* site) const;

  bool decoder_, bias_in_every_block_;
  int64_t head_dim_;
};

class T5 : public Model {
 public:
  T5(const nlohmann::json& config, bool separate_head);

  at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const override;
  const OutputHead& head() const override { return head_; }
  std::unique_ptr<Generation> generate(at::Device device) const override;

  bool encoder_decoder() const override { return true; }
  int64_t num_blocks() const override { return c_.encoder_layers + c_.decoder_layers; }
  std::vector<Module*> blocks() override;
  std::vector<Parameter*> vocabulary() override { return head_.tables(); }
  int64_t vocab_size() const override { return shared_.weight.shape[0]; }
  void untie_head() override;
  std::vector<std::string> default_lora_targets() const override { return {"q", "v"}; }
  CollateOptions collate_options() const override;
  std::vector<std::string> tied_names() const override;
  bool packs_on_gpu() const override;
  bool packs_by_starts(at::Device device) const override;
  bool has_dropout() const override { return true; }
  double dropout() const override { return c_.dropout; }
  void set_dropout(double p) override { c_.dropout = p; }

 private:
  friend class T5Generation;

  T5Pass start(const ForwardContext& context, const at::Tensor& rows) const;
  Encoded encode(const MicroBatch& batch, const ForwardContext& context, int64_t recompute) const;

  T5Config c_;
  std::string prefix_;  // of the names of all but the head: "transformer." beside one that scores texts
  Embedding shared_;
  Embedding encoder_embed_, decoder_embed_;  // each stack's embed_tokens: uses shared's table
  T5Stack encoder_, decoder_;
  OutputHead head_;
};

}  // namespace trainer
