// The facts of a decoder-only model on the skeleton of Llama (decoder.h). A family is a function that makes
// them from its config.json, in a file of its own: llama.cpp, qwen2.cpp, ...
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/models/model.h"
#include "trainer/nn/activation.h"
#include "trainer/nn/norm.h"
#include "trainer/nn/rotary.h"

namespace trainer {

// The RMSNorms of a layer by their names on disk; empty: there is none at this place. With all of them
//   h = x + after_attention(attention(before_attention(x))), y = h + after_mlp(mlp(before_mlp(h))).
struct LayerNorms {
  std::string before_attention = "input_layernorm", after_attention;
  std::string before_mlp = "post_attention_layernorm", after_mlp;
};

struct DecoderConfig {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  int64_t padding_idx;           // of the embedding; -1: none
  double embedding_scale = 1.0;  // on what is looked up, rounded to its type first
  NormFacts norm;                // of all RMSNorms
  LayerNorms layer_norms;
  Activation activation = Activation::silu;
  RopeParameters rope;
  std::optional<RopeParameters> sliding_rope;  // of sliding layers, where they have another
  bool tied = false;                           // where no lm_head.weight of its own is stored
  bool qkv_bias = false;                       // of q_proj, k_proj, v_proj
  bool output_bias = false;                    // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;             // RMSNorm over head_dim on queries and keys, before the rotary embedding
  double attention_scale = 0.0;     // on the scores
  double attention_soft_cap = 0.0;  // c: scaled scores become c tanh(score / c); 0: no cap
  double logit_soft_cap = 0.0;      // the same of the logits
  int64_t sliding_window = 0;       // positions that a sliding layer sees
  std::vector<bool> sliding, rotated;  // by layer: sees only the window; queries and keys are rotated
};

// `config` with a family's defaults for keys that are absent. null is a value: the absence of the thing.
nlohmann::json with_defaults(const nlohmann::json& config, nlohmann::json defaults);

// Throws FormatError unless it is a number above 0.
double config_positive(const nlohmann::json& config, const char* key);

// What all families read alike: sizes, activation, rotary embedding, tying; no biases, all layers full and
// rotated. max_position_embeddings must be in the file or a default. Throws FormatError: a key that is
// missing or of a wrong type, and whatever would change the mathematics and is not supported, by name.
DecoderConfig read_decoder_config(const nlohmann::json& config);

// Which layers have a window by `layer_types`; nothing where there is no such list. Throws FormatError: a
// list of another length than the layers, an entry other than full_attention and sliding_attention.
std::optional<std::vector<bool>> read_layer_types(const nlohmann::json& config, int64_t num_layers);

// The window of `sliding_window`; none where it is absent or null.
void read_sliding_window(const nlohmann::json& config, DecoderConfig& facts);

// Throws FormatError: a sliding layer, and no window.
void check_windows(const DecoderConfig& facts);

// Qwen's: a window where use_sliding_window says so, in the layers that layer_types names, else in those from
// max_window_layers on.
void read_qwen_windows(const nlohmann::json& config, DecoderConfig& facts);

// What Gemma 2 and 3 share: norms before and after each part that multiply by 1 + weight, a scaled embedding,
// `hidden_activation`, `query_pre_attn_scalar`, `final_logit_softcapping`; windows in the layers that
// layer_types names, else in all but every `pattern`th. `config` has Gemma's defaults.
DecoderConfig read_gemma_config(nlohmann::json config, int64_t pattern);

std::unique_ptr<Model> make_decoder(const nlohmann::json& config, const DecoderConfig& facts,
                                    bool separate_head);

}  // namespace trainer
