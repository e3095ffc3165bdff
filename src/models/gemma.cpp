// Gemma (2024): Llama with a scaled embedding and norms that multiply by 1 + weight. Tested against
// transformers, models/gemma.
#include <cmath>

#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig gemma_config(const nlohmann::json& config) {
  nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 16},
                                            {"head_dim", 256},
                                            {"hidden_act", "gelu_pytorch_tanh"},
                                            {"max_position_embeddings", 8192},
                                            {"pad_token_id", 0},
                                            {"tie_word_embeddings", true}});
  if (c["hidden_act"] == "gelu") c["hidden_act"] = "gelu_pytorch_tanh";  // what the first files mean
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.rounded_embedding_scale = true;
  facts.embedding_scale = std::sqrt(static_cast<double>(facts.hidden_size));
  facts.norm.scale = NormScale::one_plus_weight;
  return facts;
}

}  // namespace trainer
