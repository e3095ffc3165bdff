// OLMo 2 (OLMo team 2024): Llama with a norm after each part in the place of the one before it, and norms on
// queries and keys over all heads together. OLMo 3 (2025): three of four layers have a window, and no scaled
// rotary embedding. Tested against transformers, models/olmo2 and models/olmo3.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

static DecoderConfig read_olmo(const nlohmann::json& c) {
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.qk_norm_whole = true;
  facts.layer_norms = {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
  return facts;
}

static nlohmann::json with_olmo_defaults(const nlohmann::json& config) {
  return with_defaults(config,
                       {{"max_position_embeddings", 2048}, {"pad_token_id", 1}, {"rms_norm_eps", 1e-5}});
}

DecoderConfig olmo2_config(const nlohmann::json& config) { return read_olmo(with_olmo_defaults(config)); }

DecoderConfig olmo3_config(const nlohmann::json& config) {
  nlohmann::json c = with_defaults(with_olmo_defaults(config), {{"sliding_window", 4096}});
  const nlohmann::json ropes = c.value("rope_parameters", nlohmann::json::object());
  c.erase("rope_parameters");
  DecoderConfig facts = read_olmo(c);
  read_sliding_window(c, facts);
  for (size_t i = 0; i < facts.sliding.size(); i++) facts.sliding[i] = (i + 1) % 4 != 0;
  facts.sliding = read_layer_types(c, facts.num_layers).value_or(facts.sliding);
  check_windows(facts);
  // A rope_theta outside of rope_parameters is that of the layers without a window, as in Transformers.
  constexpr double kTheta = 5e5;
  nlohmann::json sliding = c;
  sliding["rope_theta"] = kTheta;
  sliding["rope_scaling"] = nullptr;
  c["rope_theta"] = config_double(c, "rope_theta", kTheta);
  facts.rope = rope_of_layer_type(ropes, "full_attention", facts.head_dim, c);
  facts.sliding_rope = rope_of_layer_type(ropes, "sliding_attention", facts.head_dim, sliding);
  return facts;
}

}  // namespace trainer
