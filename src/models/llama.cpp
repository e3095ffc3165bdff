// Llama 2 and 3 (Touvron et al. 2023) and models saved as Llama, such as SmolLM2. Tested against
// transformers, models/llama.
#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig llama_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"max_position_embeddings", 2048}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.mlp_bias = config_bool(c, "mlp_bias", false);
  read_sliding_window(c, facts);
  if (facts.sliding_window > 0 ||
      read_layer_types(c, facts.num_layers).value_or(facts.sliding) != facts.sliding)
    throw FormatError("config.json: sliding_window is not supported for model_type llama, which has none");
  return facts;
}

}  // namespace trainer
