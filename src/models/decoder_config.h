// The configuration of a decoder-only model with Llama's structure (decoder.h). A family is a function that
// makes it from its config.json, in a file of its own: llama.cpp, qwen2.cpp, ...
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/models/model.h"

#include "nn/norm.h"
#include "nn/rotary.h"
#include "ops/activation.h"
#include "ops/gated_delta.h"

namespace trainer {

// The RMSNorms of a layer by their names on disk; empty: no norm at this place. With all of them
//   h = x + after_attention(attention(before_attention(x))), y = h + after_mlp(mlp(before_mlp(h))).
struct LayerNorms {
  std::string before_attention = "input_layernorm", after_attention;
  std::string before_mlp = "post_attention_layernorm", after_mlp;
};

// Keys' and values' heads of a layer, and the size of each of its heads.
struct HeadShape {
  int64_t num_kv_heads, head_dim;
};

class Mixer;
class FeedForward;
struct DecoderConfig;

// The parts of a layer that most families have: attention, and the gated feed-forward.
std::unique_ptr<Mixer> make_attention(const DecoderConfig& config, size_t layer);
std::unique_ptr<FeedForward> make_mlp(const DecoderConfig& config, size_t layer);

struct DecoderConfig {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  std::optional<HeadShape> full_heads;   // of layers without a window, if theirs differ
  std::string body = "model";            // the name of the module that has all layers
  std::string final_norm = "norm";       // of the norm behind them
  int64_t padding_idx;                   // the embedding's; -1: none
  double embedding_scale = 1.0;          // multiplies the looked-up rows
  bool rounded_embedding_scale = false;  // it is rounded to their type first
  NormFacts norm;                        // for all RMSNorms
  LayerNorms layer_norms;
  Activation activation = Activation::silu;
  RopeParameters rope;
  std::optional<RopeParameters> sliding_rope;  // for sliding layers, if theirs differs
  bool tied = false;                           // the head is the embedding unless a lm_head.weight is stored
  // Names of the layers that compute queries, keys and values, or gate and up, at once; empty: a layer for
  // each (q_proj, k_proj, v_proj; gate_proj, up_proj).
  std::string fused_qkv, fused_gate_up;
  // Names of the feed-forward and of its layers, and of layers of attention.
  std::string mlp = "mlp", gate_proj = "gate_proj", up_proj = "up_proj", down_proj = "down_proj";
  std::string output_proj = "o_proj", q_norm = "q_norm", k_norm = "k_norm";
  bool qkv_bias = false;     // q_proj, k_proj and v_proj have biases
  bool output_bias = false;  // o_proj has one
  bool mlp_bias = false;
  bool qk_norm = false;      // RMSNorm over head_dim on queries and keys, before the rotary embedding
  bool output_gate = false;  // q_proj gives each head's query and then a gate: sigmoid(gate) times its output
  bool qk_norm_whole = false;  // the same over all heads of a position together
  bool rotates_neighbours =
      false;                // dimensions 2i and 2i + 1 are a pair; else i and i + half the rotated ones
  bool value_norm = false;  // RMSNorm without weights over head_dim on values
  bool full_keys_are_values = false;  // layers without a window have no v_proj; values are k_proj's output
  bool layer_scalar = false;          // a layer's result is multiplied by a stored number, never trained
  // Each layer has an embedding of its own of this size for every token; 0: none.
  int64_t per_layer_size = 0, per_layer_vocab = 0;
  int64_t layers_sharing_keys = 0;  // the last ones, which use those of the last layer of their kind before
  int64_t sharing_intermediate_size = 0;  // of these layers
  // Queries are multiplied by 1 + beta log(1 + floor(position / length)) after the rotation; beta 0: they are
  // not.
  double query_growth_beta = 0.0;
  int64_t query_growth_length = 0;
  double attention_scale = 0.0;        // multiplies the scores
  double attention_soft_cap = 0.0;     // c: scaled scores become c tanh(score / c); 0: no cap
  double residual_scale = 1.0;         // multiplies what attention and feed-forward add
  double logit_scale = 1.0;            // multiplies the logits
  double logit_soft_cap = 0.0;         // the same for the scaled logits as for the scores
  int64_t sliding_window = 0;          // positions that a sliding layer sees
  std::vector<bool> sliding, rotated;  // by layer: sees only the window; queries and keys are rotated
  // By layer: Gated DeltaNet or a short convolution instead of attention; empty: none.
  std::vector<bool> recurrent;
  DeltaShape delta{};      // of a Gated DeltaNet
  int64_t conv_width = 0;  // of the convolution in such a layer
  bool conv_bias = false;  // a short convolution and its projections have biases
  // Functions that build the parts of a layer.
  std::unique_ptr<Mixer> (*mixer)(const DecoderConfig& config, size_t layer) = make_attention;
  std::unique_ptr<FeedForward> (*feed_forward)(const DecoderConfig& config, size_t layer) = make_mlp;

  HeadShape heads_of(size_t layer) const {
    return full_heads && !sliding[layer] ? *full_heads : HeadShape{num_kv_heads, head_dim};
  }
  bool keys_are_values(size_t layer) const { return full_keys_are_values && !sliding[layer]; }
  bool shares_keys(size_t layer) const { return layer >= first_sharing(); }
  // Returns the layer whose keys and values this one attends to.
  size_t keys_of(size_t layer) const;
  bool stores_keys(size_t layer) const;  // others attend to them, too
  int64_t intermediate_of(size_t layer) const {
    return shares_keys(layer) ? sharing_intermediate_size : intermediate_size;
  }

 private:
  size_t first_sharing() const { return static_cast<size_t>(num_layers - layers_sharing_keys); }
};

// Returns `config` with a family's defaults for missing keys. null is a value: it means that the model does
// not have the feature.
nlohmann::json with_defaults(const nlohmann::json& config, nlohmann::json defaults);

// Returns the number under `key`. Throws FormatError unless it is above 0.
double config_positive(const nlohmann::json& config, const char* key);

// The part of a head that a family rotates: all, or its partial_rotary_factor.
enum class RotaryWidth { whole_heads, partial };

// Reads what all families have in common: sizes, activation, rotary embedding, tying; no biases, full
// attention and rotation in all layers. max_position_embeddings must be in the file or a default. Throws
// FormatError, with the key, if a key is missing or has the wrong type, or if it would change the mathematics
// in a way that is not supported.
DecoderConfig read_decoder_config(const nlohmann::json& config,
                                  RotaryWidth rotary_width = RotaryWidth::whole_heads);

// Returns which layers have a window according to `layer_types`; nullopt if the list is missing. Throws
// FormatError if the list does not have one entry per layer, or an entry is neither full_attention nor
// sliding_attention.
std::optional<std::vector<bool>> read_layer_types(const nlohmann::json& config, int64_t num_layers);

// Reads the window from `sliding_window`; no window if the key is missing or null.
void read_sliding_window(const nlohmann::json& config, DecoderConfig& facts);

// Throws FormatError if there is a sliding layer but no window.
void check_windows(const DecoderConfig& facts);

// Reads Qwen's windows: if use_sliding_window is true, the layers that layer_types names have a window;
// without that list, all layers from max_window_layers on.
void read_qwen_windows(const nlohmann::json& config, DecoderConfig& facts);

// Reads what Gemma 2 and 3 have in common: norms before and after each part that multiply by 1 + weight, a
// scaled embedding, `hidden_activation`, `query_pre_attn_scalar` and `final_logit_softcapping`. The layers
// that layer_types names have windows; without that list, all but every `pattern`th. `config` already has
// Gemma's defaults.
DecoderConfig read_gemma_config(nlohmann::json config, int64_t pattern);

// Returns the model's tree of shapes.
std::unique_ptr<Model> make_decoder(const nlohmann::json& config, const DecoderConfig& facts,
                                    bool separate_head);

// Returns the rotary embedding of one type of layer. `ropes`: rope_parameters as Transformers 5 writes it if
// it has an entry for each type; `flat`: the config, which older files say it in.
RopeParameters rope_of_layer_type(const nlohmann::json& ropes, const char* layer_type, int64_t head_dim,
                                  nlohmann::json flat);

// The model families with Llama's structure: each reads its config.json, in a file of its own.

DecoderConfig cwm_config(const nlohmann::json& config);
DecoderConfig ernie4_5_config(const nlohmann::json& config);
DecoderConfig gemma_config(const nlohmann::json& config);
DecoderConfig gemma2_config(const nlohmann::json& config);
DecoderConfig gemma3_config(const nlohmann::json& config);
DecoderConfig gemma4_config(const nlohmann::json& config);
DecoderConfig gemma4_unified_config(const nlohmann::json& config);
DecoderConfig glm_config(const nlohmann::json& config);
DecoderConfig glm4_config(const nlohmann::json& config);
DecoderConfig granite_config(const nlohmann::json& config);
DecoderConfig granite_hybrid_config(const nlohmann::json& config);
DecoderConfig helium_config(const nlohmann::json& config);
DecoderConfig internlm3_config(const nlohmann::json& config);
DecoderConfig iquestcoder_config(const nlohmann::json& config);
DecoderConfig lfm2_config(const nlohmann::json& config);
DecoderConfig llama_config(const nlohmann::json& config);
DecoderConfig ministral_config(const nlohmann::json& config);
DecoderConfig ministral3_config(const nlohmann::json& config);
DecoderConfig mistral_config(const nlohmann::json& config);
DecoderConfig olmo2_config(const nlohmann::json& config);
DecoderConfig olmo3_config(const nlohmann::json& config);
DecoderConfig phi3_config(const nlohmann::json& config);
DecoderConfig qwen2_config(const nlohmann::json& config);
DecoderConfig qwen2_vl_config(const nlohmann::json& config);
DecoderConfig qwen2_5_vl_config(const nlohmann::json& config);
DecoderConfig qwen3_config(const nlohmann::json& config);
DecoderConfig qwen3_5_config(const nlohmann::json& config);
DecoderConfig qwen3_vl_config(const nlohmann::json& config);
DecoderConfig smollm3_config(const nlohmann::json& config);

}  // namespace trainer
