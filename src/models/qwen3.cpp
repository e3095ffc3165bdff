// Qwen3: norms on queries and keys. Tested against transformers, models/qwen3.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig qwen3_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 32},
                                                  {"head_dim", 128},
                                                  {"max_position_embeddings", 32768},
                                                  {"sliding_window", 4096}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.qk_norm = true;
  read_qwen_windows(c, facts);
  return facts;
}

}  // namespace trainer
