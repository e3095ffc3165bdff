// The text halves of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Qwen2 and Qwen3. Positions of texts have three equal
// coordinates, so that the rotary embedding is the ordinary one. Tested against transformers,
// models/qwen2_vl, models/qwen2_5_vl and models/qwen3_vl.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig qwen2_5_vl_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 8},
                                                  {"max_position_embeddings", 32768},
                                                  {"max_window_layers", 80},
                                                  {"rms_norm_eps", 1e-5},
                                                  {"rope_theta", 1e6},
                                                  {"sliding_window", 4096}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = true;
  read_qwen_windows(c, facts);
  return facts;
}

DecoderConfig qwen2_vl_config(const nlohmann::json& config) { return qwen2_5_vl_config(config); }

DecoderConfig qwen3_vl_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 32},
                                                  {"head_dim", 128},
                                                  {"max_position_embeddings", 128000},
                                                  {"rope_theta", 5e5}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.qk_norm = true;
  return facts;
}

}  // namespace trainer
