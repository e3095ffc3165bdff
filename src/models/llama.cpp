// Llama 2 and 3 (Touvron et al. 2023) and what is saved as one, such as SmolLM2. Held against transformers,
// models/llama.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig llama_config(const nlohmann::json& config) {
  DecoderConfig facts = read_decoder_config(config);
  facts.qkv_bias = facts.output_bias = config_bool(config, "attention_bias", false);
  facts.mlp_bias = config_bool(config, "mlp_bias", false);
  return facts;
}

}  // namespace trainer
