// The text model of Gemma 3 (2025): norms on queries and keys; five of six layers have a window and a rotary
// embedding of their own. Tested against transformers, models/gemma3.
#include "trainer/base/log.h"
#include "trainer/formats/model_directory.h"

#include "formats/text_half.h"
#include "models/decoder_config.h"

namespace trainer {

DecoderConfig gemma3_config(const nlohmann::json& config) {
  nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 4},
                                            {"head_dim", 256},
                                            {"max_position_embeddings", 131072},
                                            {"pad_token_id", 0},
                                            {"tie_word_embeddings", true},
                                            {"rope_theta", 1e6},
                                            {"rope_local_base_freq", 1e4},
                                            {"rope_scaling", nullptr},
                                            {"query_pre_attn_scalar", 256},
                                            {"sliding_window", 4096},
                                            {"sliding_window_pattern", 6}});
  const nlohmann::json ropes = c.value("rope_parameters", nlohmann::json::object());
  c.erase("rope_parameters");
  DecoderConfig facts = read_gemma_config(c, config_size(c, "sliding_window_pattern"));
  facts.qk_norm = true;
  nlohmann::json sliding = c;
  sliding["rope_theta"] = c["rope_local_base_freq"];
  sliding["rope_scaling"] = nullptr;
  facts.rope = rope_of_layer_type(ropes, "full_attention", facts.head_dim, c);
  facts.sliding_rope = rope_of_layer_type(ropes, "sliding_attention", facts.head_dim, sliding);
  if (facts.logit_soft_cap != 0 && c.contains(kWholeModelType)) {
    log::warning(
        "config.json: text_config.final_logit_softcapping has no effect, as in Transformers: "
        "model_type gemma3 does not cap logits");
    facts.logit_soft_cap = 0;
  }
  if (c.contains("attn_logit_softcapping") && !c["attn_logit_softcapping"].is_null()) {
    log::warning(
        "config.json: attn_logit_softcapping has no effect, as in Transformers: "
        "model_type gemma3_text does not cap attention scores");
  }
  return facts;
}

}  // namespace trainer
