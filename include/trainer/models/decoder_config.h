// The facts of a decoder-only model on the skeleton of Llama (decoder.h). A family is a function that makes
// them from its config.json, in a file of its own: llama.cpp, qwen2.cpp, ...
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/models/model.h"
#include "trainer/nn/activation.h"
#include "trainer/nn/rotary.h"

namespace trainer {

struct DecoderConfig {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  int64_t padding_idx;  // of the embedding; -1: none
  double rms_norm_eps;
  Activation activation = Activation::silu;
  RopeParameters rope;
  bool tied = false;         // where no lm_head.weight of its own is stored
  bool qkv_bias = false;     // of q_proj, k_proj, v_proj
  bool output_bias = false;  // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;        // RMSNorm over head_dim on queries and keys, before the rotary embedding
  int64_t sliding_window = 0;  // positions that a sliding layer sees
  std::vector<bool> sliding, rotated;  // by layer: sees only the window; queries and keys are rotated
};

// `config` with a family's defaults for keys that are absent. null is a value: the absence of the thing.
nlohmann::json with_defaults(const nlohmann::json& config, nlohmann::json defaults);

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

std::unique_ptr<Model> make_decoder(const nlohmann::json& config, const DecoderConfig& facts,
                                    bool separate_head);

}  // namespace trainer
