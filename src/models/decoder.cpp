// Decoder-only models on one skeleton: Llama (Touvron et al. 2023), Qwen2 / Qwen2.5 (biases on q, k, v),
// Qwen3 (norms on q and k). Held against transformers, models/{llama,qwen2,qwen3}/modeling_*.py. Shapes: B
// batch, S sequence, D hidden_size, H num_attention_heads, G num_key_value_heads, K head_dim.
#include <cmath>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/models/registry.h"
#include "trainer/nn/attention.h"
#include "trainer/nn/checkpoint.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/norm.h"
#include "trainer/nn/rotary.h"

namespace trainer {
namespace {

struct DecoderConfig {
  explicit DecoderConfig(const nlohmann::json& c)
      : vocab_size(config_size(c, "vocab_size")),
        hidden_size(config_size(c, "hidden_size")),
        intermediate_size(config_size(c, "intermediate_size")),
        num_layers(config_size(c, "num_hidden_layers")),
        num_heads(config_size(c, "num_attention_heads")),
        num_kv_heads(config_size(c, "num_key_value_heads", num_heads)),
        head_dim(config_size(c, "head_dim", hidden_size / num_heads)),
        pad_id(config_int(c, "pad_token_id", 0)),
        epsilon(config_double(c, "rms_norm_eps", 1e-6)) {
    const std::string type = c.at("model_type");
    const bool attention_bias = config_bool(c, "attention_bias", false);
    qkv_bias = type == "qwen2" || attention_bias;
    output_bias = type != "qwen2" && attention_bias;
    mlp_bias = type == "llama" && config_bool(c, "mlp_bias", false);
    qk_norm = type == "qwen3";
    check(c);
  }

  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim, pad_id;
  double epsilon;
  bool qkv_bias, output_bias, mlp_bias, qk_norm;

 private:
  // What would change the mathematics and is not built is refused, never ignored.
  void check(const nlohmann::json& c) const {
    const auto refuse = [](const std::string& what) {
      throw FormatError(concat("config.json: ", what, " is not supported for this model_type"));
    };
    if (head_dim % 2 != 0) refuse("an odd head_dim");
    const std::string activation = config_string(c, "hidden_act", "silu");
    if (activation != "silu") refuse("hidden_act '" + activation + "' (only silu)");
    if (config_bool(c, "use_sliding_window", false)) refuse("use_sliding_window: true");
    if (config_double(c, "attention_dropout", 0.0) != 0.0) refuse("attention_dropout other than 0");
    if (config_double(c, "partial_rotary_factor", 1.0) != 1.0) refuse("partial_rotary_factor other than 1");
    if (num_heads % num_kv_heads != 0)
      refuse("num_attention_heads that is no multiple of num_key_value_heads");
    if (c.contains("layer_types") && c["layer_types"].is_array()) {
      for (const auto& layer : c["layer_types"]) {
        if (layer != "full_attention") refuse("layer_types entry " + layer.dump());
      }
    }
  }
};

// What all layers share in one forward pass.
struct Pass {
  const ForwardContext* context;
  at::Tensor rows;                           // dropout keys [B, S]
  std::pair<at::Tensor, at::Tensor> rotary;  // of these positions
};

struct LayerCache {
  at::Tensor k, v;  // [B, G, positions, K], rotated
};

class Attention : public Module {
 public:
  explicit Attention(const DecoderConfig& c)
      : q_proj(c.hidden_size, c.num_heads * c.head_dim, c.qkv_bias),
        k_proj(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias),
        v_proj(c.hidden_size, c.num_kv_heads * c.head_dim, c.qkv_bias),
        o_proj(c.num_heads * c.head_dim, c.hidden_size, c.output_bias),
        head_dim_(c.head_dim) {
    add("q_proj", q_proj);
    add("k_proj", k_proj);
    add("v_proj", v_proj);
    add("o_proj", o_proj);
    if (c.qk_norm) {
      add("q_norm", q_norm.emplace(c.head_dim, c.epsilon));
      add("k_norm", k_norm.emplace(c.head_dim, c.epsilon));
    }
  }

  // x [B, S, D] -> [B, S, D], causal
  at::Tensor forward(const at::Tensor& x, const Pass& pass, LayerCache* cache = nullptr) const {
    AttentionInputs in;
    in.q = rotated(heads(q_proj, x, pass), q_norm, pass);
    in.k = rotated(heads(k_proj, x, pass), k_norm, pass);
    in.v = heads(v_proj, x, pass).transpose(1, 2);
    in.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
    in.causal = x.size(1) > 1;  // a single new token sees everything before it
    if (cache != nullptr) {
      if (cache->k.defined()) {
        in.k = at::cat({cache->k, in.k}, 2);
        in.v = at::cat({cache->v, in.v}, 2);
      }
      *cache = {in.k, in.v};
    }
    return o_proj.forward(attention(in).transpose(1, 2).flatten(2), pass.rows, *pass.context);
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<RmsNorm> q_norm, k_norm;

 private:
  // [B, S, heads, K]
  at::Tensor heads(const Linear& projection, const at::Tensor& x, const Pass& pass) const {
    return projection.forward(x, pass.rows, *pass.context).unflatten(2, {-1, head_dim_});
  }
  // [B, heads, S, K]
  static at::Tensor rotated(const at::Tensor& x, const std::optional<RmsNorm>& norm, const Pass& pass) {
    return Rotary::apply((norm ? norm->forward(x) : x).transpose(1, 2), pass.rotary);
  }

  int64_t head_dim_;
};

class Mlp : public Module {
 public:
  explicit Mlp(const DecoderConfig& c)
      : gate_proj(c.hidden_size, c.intermediate_size, c.mlp_bias),
        up_proj(c.hidden_size, c.intermediate_size, c.mlp_bias),
        down_proj(c.intermediate_size, c.hidden_size, c.mlp_bias) {
    add("gate_proj", gate_proj);
    add("up_proj", up_proj);
    add("down_proj", down_proj);
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass) const {
    const at::Tensor gate = at::silu(gate_proj.forward(x, pass.rows, *pass.context));
    return down_proj.forward(gate * up_proj.forward(x, pass.rows, *pass.context), pass.rows, *pass.context);
  }

  Linear gate_proj, up_proj, down_proj;
};

class Layer : public Module {
 public:
  explicit Layer(const DecoderConfig& c)
      : self_attn(c),
        mlp(c),
        input_layernorm(c.hidden_size, c.epsilon),
        post_attention_layernorm(c.hidden_size, c.epsilon) {
    add("self_attn", self_attn);
    add("mlp", mlp);
    add("input_layernorm", input_layernorm);
    add("post_attention_layernorm", post_attention_layernorm);
  }

  at::Tensor forward(const at::Tensor& x, const Pass& pass, LayerCache* cache = nullptr) const {
    const at::Tensor h = x + self_attn.forward(input_layernorm.forward(x), pass, cache);
    return h + mlp.forward(post_attention_layernorm.forward(h), pass);
  }

  Attention self_attn;
  Mlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;
};

struct Embedding : Module {
  Embedding(int64_t rows, int64_t size) : weight({rows, size}) { add("weight", weight); }
  Parameter weight;
};

// `model` in the names on disk.
struct Body : Module {
  explicit Body(const DecoderConfig& c)
      : embed_tokens(c.vocab_size, c.hidden_size), norm(c.hidden_size, c.epsilon) {
    add("embed_tokens", embed_tokens);
    for (int64_t i = 0; i < c.num_layers; i++) {
      layers.push_back(std::make_unique<Layer>(c));
      add("layers." + std::to_string(i), *layers.back());
    }
    add("norm", norm);
  }
  Embedding embed_tokens;
  std::vector<std::unique_ptr<Layer>> layers;
  RmsNorm norm;
};

class Decoder : public Model {
 public:
  Decoder(const nlohmann::json& json, bool separate_head)
      : Model(json), c_(json), body_(c_), rotary_(json, c_.head_dim) {
    add("model", body_);
    if (separate_head || !config_bool(json, "tie_word_embeddings", false)) {
      add("lm_head", lm_head_.emplace(c_.hidden_size, c_.vocab_size, false));
    }
    assign_names();
  }

  // Rows are padded on the right, so a causal mask alone keeps padding out of what counts.
  at::Tensor supervised_states(const MicroBatch& batch, const ForwardContext& context) const override {
    at::Tensor h = embed(batch.input_ids);
    Pass pass = start(context, batch.slots, h, 0);
    for (size_t i = 0; i < body_.layers.size(); i++) {
      const Layer& layer = *body_.layers[i];
      if (static_cast<int64_t>(i) < context.recompute_blocks) {
        h = checkpoint(h, std::nullopt, context.anchor,
                       [&layer, pass, context](const at::Tensor& x, const auto&) mutable {
                         pass.context = &context;
                         return layer.forward(x, pass);
                       });
      } else {
        h = layer.forward(h, pass);
      }
    }
    return body_.norm.forward(h.flatten(0, 1).index_select(0, batch.supervised_rows));
  }
  at::Tensor output_weight() const override {
    return (lm_head_ ? lm_head_->weight : body_.embed_tokens.weight).as(dtype());
  }

  std::unique_ptr<Generation> generate(const at::Tensor& input_ids, const at::Tensor& lengths) const override;

  bool encoder_decoder() const override { return false; }
  int64_t num_blocks() const override { return c_.num_layers; }
  int64_t vocab_size() const override { return c_.vocab_size; }
  std::vector<std::string> default_lora_targets() const override { return {"q_proj", "v_proj"}; }
  CollateOptions collate_options() const override { return {false, c_.pad_id, 0}; }
  std::vector<std::string> tied_names() const override {
    if (lm_head_) return {"model.embed_tokens.weight"};
    return {"model.embed_tokens.weight", "lm_head.weight"};
  }

 private:
  friend class DecoderGeneration;

  at::Tensor embed(const at::Tensor& ids) const {
    return at::embedding(body_.embed_tokens.weight.value, ids).to(dtype());
  }

  Pass start(const ForwardContext& context, const at::Tensor& slots, const at::Tensor& h,
             int64_t first) const {
    return {&context, row_keys(slots, h.size(1)), rotary_.tables(first, h.size(1), h.options())};
  }

  DecoderConfig c_;
  Body body_;
  Rotary rotary_;
  std::optional<Linear> lm_head_;
};

class DecoderGeneration : public Generation {
 public:
  DecoderGeneration(const Decoder& model, const at::Tensor& ids)
      : model_(model), slots_(at::arange(ids.size(0), ids.options())), caches_(model.body_.layers.size()) {}

  at::Tensor next_logits(const at::Tensor& tokens) override {
    at::Tensor h = model_.embed(tokens);
    const Pass pass = model_.start(context_, slots_, h, position_);
    position_ += tokens.size(1);
    for (size_t i = 0; i < caches_.size(); i++) h = model_.body_.layers[i]->forward(h, pass, &caches_[i]);
    h = model_.body_.norm.forward(h.select(1, -1));
    return at::linear(h, model_.output_weight()).to(at::kFloat);
  }

 private:
  const Decoder& model_;
  ForwardContext context_;
  at::Tensor slots_;
  std::vector<LayerCache> caches_;
  int64_t position_ = 0;
};

std::unique_ptr<Generation> Decoder::generate(const at::Tensor& input_ids, const at::Tensor&) const {
  return std::make_unique<DecoderGeneration>(*this, input_ids);
}

}  // namespace

std::unique_ptr<Model> make_decoder(const nlohmann::json& config, bool separate_head) {
  return std::make_unique<Decoder>(config, separate_head);
}

}  // namespace trainer
