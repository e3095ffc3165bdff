// Mistral (Jiang et al. 2023): Llama with a window in every layer, unless sliding_window is null. Tested
// against transformers, models/mistral.
#include "trainer/base/error.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig mistral_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(
      config, {{"num_key_value_heads", 8}, {"max_position_embeddings", 131072}, {"sliding_window", 4096}});
  DecoderConfig facts = read_decoder_config(c);
  read_sliding_window(c, facts);
  facts.sliding.assign(facts.sliding.size(), facts.sliding_window > 0);
  if (read_layer_types(c, facts.num_layers).value_or(facts.sliding) != facts.sliding) {
    throw FormatError(
        "config.json: layer_types is not supported for model_type mistral where it differs from "
        "sliding_window, which holds for all layers");
  }
  return facts;
}

}  // namespace trainer
