// Ministral 3 (Mistral AI 2025): Mistral whose queries grow with their position beyond the length of
// pretraining. Tested against transformers, models/ministral3.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

// What Transformers takes if the file says nothing about the rotary embedding.
static const nlohmann::json kRope{{"rope_type", "yarn"},
                                  {"rope_theta", 1e6},
                                  {"factor", 16.0},
                                  {"original_max_position_embeddings", 16384},
                                  {"beta_fast", 32.0},
                                  {"beta_slow", 1.0},
                                  {"mscale", 1.0},
                                  {"mscale_all_dim", 1.0},
                                  {"llama_4_scaling_beta", 0.1}};

DecoderConfig ministral3_config(const nlohmann::json& config) {
  nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 8},
                                            {"head_dim", 128},
                                            {"max_position_embeddings", 262144},
                                            {"pad_token_id", 11},
                                            {"rms_norm_eps", 1e-5}});
  if (!c.contains("rope_scaling") && !c.contains("rope_theta")) c["rope_scaling"] = kRope;
  DecoderConfig facts = read_decoder_config(c);
  read_sliding_window(c, facts);
  facts.sliding.assign(facts.sliding.size(), facts.sliding_window > 0);
  const nlohmann::json rope = c.value("rope_scaling", nlohmann::json());
  if (!rope.is_object()) return facts;
  facts.query_growth_beta = config_double(rope, "llama_4_scaling_beta", 0.0);
  if (facts.query_growth_beta == 0) return facts;
  const char* length = "original_max_position_embeddings";
  facts.query_growth_length =
      config_size(rope, length, config_size(c, length, facts.rope.max_position_embeddings));
  return facts;
}

}  // namespace trainer
