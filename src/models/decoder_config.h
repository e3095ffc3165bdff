// The facts of a decoder-only model on the skeleton of Llama (decoder.h). A family is a function that makes
// them from its config.json, in a file of its own: llama.cpp, qwen2.cpp, ...
#pragma once

#include <memory>

#include <nlohmann/json.hpp>

#include "trainer/models/model.h"
#include "trainer/nn/activation.h"
#include "trainer/nn/rotary.h"

namespace trainer {

struct DecoderConfig {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  int64_t pad_id;
  double rms_norm_eps;
  Activation activation = Activation::silu;
  RopeParameters rope;
  bool tied = false;         // where no lm_head.weight of its own is stored
  bool qkv_bias = false;     // of q_proj, k_proj, v_proj
  bool output_bias = false;  // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over head_dim on queries and keys, before the rotary embedding
};

// What all families read alike: sizes, activation, rotary embedding, tying. Throws FormatError: a key that is
// missing or of a wrong type, and whatever would change the mathematics and is not supported, by name.
DecoderConfig read_decoder_config(const nlohmann::json& config);

std::unique_ptr<Model> make_decoder(const nlohmann::json& config, const DecoderConfig& facts,
                                    bool separate_head);

}  // namespace trainer
