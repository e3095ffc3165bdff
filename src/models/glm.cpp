// GLM-4 (Zhipu AI 2024): one layer for gate and up, a rotary embedding of neighbouring dimensions on half of
// each head. GLM-4-0414 (2025), model_type glm4: norms after each part, too. Tested against transformers,
// models/glm and models/glm4.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig glm_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 2},
                                                  {"head_dim", 128},
                                                  {"max_position_embeddings", 131072},
                                                  {"pad_token_id", 151329},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"rms_norm_eps", 1.5625e-07}});
  DecoderConfig facts = read_decoder_config(c, RotaryWidth::partial);
  facts.qkv_bias = config_bool(c, "attention_bias", true);
  facts.fused_gate_up = "gate_up_proj";
  facts.rotates_neighbours = true;
  return facts;
}

DecoderConfig glm4_config(const nlohmann::json& config) {
  DecoderConfig facts = glm_config(config);
  facts.layer_norms = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
                       "post_mlp_layernorm"};
  return facts;
}

}  // namespace trainer
