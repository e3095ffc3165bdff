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
#include "nn/residual_stream.h"

namespace trainer {

// What all layers share in one forward pass.
struct DecoderPass {
  const ForwardContext* context;
  at::Tensor rows;                  // dropout keys [B, S]
  Rotary::Tables rotary{};          // for the positions of this pass
  Rotary::Tables sliding_rotary{};  // for sliding layers
  // In generation, after the prompt: where the new token of each row goes, and the mask that this needs.
  const CachePositions* positions = nullptr;
  at::Tensor mask{};
  // The same for sliding layers; also used if a position is outside the window of another. Additive,
  // broadcastable to [B, H, S, keys].
  at::Tensor window_mask{};
  // With packing: the sequences of the row; then there are no masks.
  std::optional<Sequences> packed{};
};

class DecoderAttention : public Module {
 public:
  DecoderAttention(const DecoderConfig& c, size_t layer);
  // x [B, S, D] -> [B, S, D], causal. The cache is filled with x; if the pass has positions, it gets one
  // position for each row instead.
  at::Tensor forward(const at::Tensor& x, const DecoderPass& pass, KvCache* cache) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<RmsNorm> q_norm, k_norm;

 private:
  // The heads of queries and keys with their norms and the rotary embedding.
  std::pair<at::Tensor, at::Tensor> positioned(const at::Tensor& q, const at::Tensor& k,
                                               const DecoderPass& pass) const;

  // Attends to the keys as the pass needs it: padded rows, packed rows, or a new token for each row.
  at::Tensor mix(const AttentionInputs& in, const DecoderPass& pass) const;

  int64_t head_dim_, window_;  // window 0: none
  bool rotated_;
  double scale_, soft_cap_;
};

class DecoderMlp : public Module {
 public:
  explicit DecoderMlp(const DecoderConfig& c);
  // x [B, S, D] -> [B, S, D]
  at::Tensor forward(const at::Tensor& x, const DecoderPass& pass) const;

  Linear gate_proj, up_proj, down_proj;

 private:
  Activation activation_;
};

class DecoderLayer : public Module {
 public:
  DecoderLayer(const DecoderConfig& c, size_t layer);
  // x [B, S, D]: adds what this layer adds.
  void forward(ResidualStream& x, const DecoderPass& pass, KvCache* cache = nullptr) const;
  // x [B, S, D] -> [B, S, D]
  at::Tensor forward(const at::Tensor& x, const DecoderPass& pass) const;

  DecoderAttention self_attn;
  DecoderMlp mlp;
  std::optional<RmsNorm> before_attention, after_attention, before_mlp, after_mlp;
};

// The module `model` in the names on disk.
struct DecoderBody : Module {
  explicit DecoderBody(const DecoderConfig& c);

  Embedding embed_tokens;
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  RmsNorm norm;
};

class Decoder : public Model {
 public:
  Decoder(const nlohmann::json& config, const DecoderConfig& facts, bool separate_head);

  at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const override;
  const OutputHead& head() const override { return head_; }
  std::unique_ptr<Generation> generate(const MicroBatch& prompts) const override;

  bool encoder_decoder() const override { return false; }
  int64_t num_blocks() const override { return c_.num_layers; }
  std::vector<Module*> blocks() override;
  std::vector<Parameter*> vocabulary() override { return head_.tables(); }
  int64_t vocab_size() const override { return body_.embed_tokens.weight.shape[0]; }
  void untie_head() override;
  std::vector<std::string> default_lora_targets() const override { return {"q_proj", "v_proj"}; }
  CollateOptions collate_options() const override { return {false, std::max<int64_t>(c_.padding_idx, 0), 0}; }
  std::vector<std::string> tied_names() const override;
  bool packs_on_gpu() const override {
    return c_.attention_soft_cap == 0 && packs_in_one_kernel(dtype(), c_.head_dim);
  }

 private:
  friend class DecoderGeneration;

  at::Tensor embed(const at::Tensor& ids) const;
  // Fills in the rotary tables for these positions.
  void rotate(DecoderPass& pass, const at::Tensor& positions, const std::vector<int64_t>& lengths,
              const at::TensorOptions& options) const;
  // A pass over the embedded tokens h [B, S, D] at these positions, int64 [S] or [B, S]. The lengths of the
  // sequences include these tokens.
  DecoderPass start(const ForwardContext& context, const at::Tensor& slots, const at::Tensor& h,
                    const at::Tensor& positions, const std::vector<int64_t>& lengths) const;
  DecoderPass start(const ForwardContext& context, const MicroBatch& batch, const at::Tensor& h) const;

  DecoderConfig c_;
  DecoderBody body_;
  Rotary rotary_;
  std::optional<Rotary> sliding_rotary_;
  OutputHead head_;
};

}  // namespace trainer
