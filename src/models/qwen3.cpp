// Qwen3: norms on queries and keys. Held against transformers, models/qwen3.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig qwen3_config(const nlohmann::json& config) {
  DecoderConfig facts = read_decoder_config(config);
  facts.qkv_bias = facts.output_bias = config_bool(config, "attention_bias", false);
  facts.qk_norm = true;
  return facts;
}

}  // namespace trainer
