// Gemma 2 (2024): a window in every other layer, caps on attention scores and logits. Tested against
// transformers, models/gemma2, with its "eager" attention: the only one there that caps the scores.
#include "models/decoder_config.h"

namespace trainer {

DecoderConfig gemma2_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 4},
                                                  {"head_dim", 256},
                                                  {"max_position_embeddings", 8192},
                                                  {"pad_token_id", 0},
                                                  {"tie_word_embeddings", true},
                                                  {"query_pre_attn_scalar", 256},
                                                  {"sliding_window", 4096},
                                                  {"final_logit_softcapping", 30.0},
                                                  {"attn_logit_softcapping", 50.0}});
  DecoderConfig facts = read_gemma_config(c, 2);
  if (!c["attn_logit_softcapping"].is_null())
    facts.attention_soft_cap = config_positive(c, "attn_logit_softcapping");
  return facts;
}

}  // namespace trainer
