// Granite 3 (IBM 2024): Llama with four multipliers. Tested against transformers, models/granite.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig granite_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"max_position_embeddings", 2048},
                                                  {"embedding_multiplier", 1.0},
                                                  {"attention_multiplier", 1.0},
                                                  {"residual_multiplier", 1.0},
                                                  {"logits_scaling", 1.0}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.mlp_bias = config_bool(c, "mlp_bias", false);
  facts.embedding_scale = config_positive(c, "embedding_multiplier");
  facts.attention_scale = config_positive(c, "attention_multiplier");
  facts.residual_scale = config_positive(c, "residual_multiplier");
  facts.logit_scale = 1.0 / config_positive(c, "logits_scaling");
  return facts;
}

}  // namespace trainer
