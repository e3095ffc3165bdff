// Families that differ from Llama in a few settings and have a model_type of their own. Tested against
// transformers, models/cwm, ernie4_5, helium, internlm3, iquestcoder and ministral.
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

static void read_llama_biases(const nlohmann::json& c, DecoderConfig& facts) {
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.mlp_bias = config_bool(c, "mlp_bias", false);
}

// Code World Model (Meta 2025): a window in three of four layers.
DecoderConfig cwm_config(const nlohmann::json& config) {
  nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 8},
                                            {"head_dim", 128},
                                            {"max_position_embeddings", 131072},
                                            {"rms_norm_eps", 1e-5},
                                            {"sliding_window", 8192}});
  // Without a scaling Transformers takes all of Meta's, the base as well, also beside a rope_theta.
  if (c.contains("rope_scaling") ? c["rope_scaling"].is_null() : !c.contains("rope_theta")) {
    c.erase("rope_theta");
    c["rope_scaling"] = {{"rope_type", "llama3"},  {"rope_theta", 1e6},
                         {"factor", 16.0},         {"high_freq_factor", 4.0},
                         {"low_freq_factor", 1.0}, {"original_max_position_embeddings", 8192}};
  }
  DecoderConfig facts = read_decoder_config(with_defaults(c, {{"rope_theta", 1e6}}));
  facts.mlp_bias = config_bool(c, "mlp_bias", false);
  read_sliding_window(c, facts);
  for (size_t i = 0; i < facts.sliding.size(); i++) facts.sliding[i] = i % 4 != 0;
  facts.sliding = read_layer_types(c, facts.num_layers).value_or(facts.sliding);
  check_windows(facts);
  return facts;
}

// ERNIE 4.5 (Baidu 2025) without experts.
DecoderConfig ernie4_5_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 2},
                                                  {"head_dim", 128},
                                                  {"max_position_embeddings", 131072},
                                                  {"pad_token_id", 0},
                                                  {"rms_norm_eps", 1e-5},
                                                  {"rope_theta", 5e5},
                                                  {"tie_word_embeddings", true}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = facts.mlp_bias = config_bool(c, "use_bias", false);
  facts.rotates_neighbours = true;
  return facts;
}

// Helium (Kyutai 2025).
DecoderConfig helium_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 20},
                                                  {"head_dim", 128},
                                                  {"max_position_embeddings", 4096},
                                                  {"pad_token_id", 3},
                                                  {"rms_norm_eps", 1e-8},
                                                  {"rope_theta", 1e5}});
  DecoderConfig facts = read_decoder_config(c);
  read_llama_biases(c, facts);
  facts.output_bias = false;
  facts.rotates_neighbours = true;
  return facts;
}

DecoderConfig internlm3_config(const nlohmann::json& config) {
  nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 2},
                                            {"head_dim", 128},
                                            {"max_position_embeddings", 32768},
                                            {"pad_token_id", 2},
                                            {"rms_norm_eps", 1e-5}});
  if (c.contains("qkv_bias")) c["attention_bias"] = c["qkv_bias"];
  if (c.contains("bias")) c["mlp_bias"] = c["bias"];
  DecoderConfig facts = read_decoder_config(c);
  read_llama_biases(c, facts);
  return facts;
}

DecoderConfig iquestcoder_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 8},
                                                  {"head_dim", 128},
                                                  {"max_position_embeddings", 131072},
                                                  {"rms_norm_eps", 1e-5}});
  DecoderConfig facts = read_decoder_config(c);
  read_llama_biases(c, facts);
  return facts;
}

// Ministral 8B (Mistral AI 2024): layer_types says which layers have the window.
DecoderConfig ministral_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(
      config, {{"num_key_value_heads", 8}, {"max_position_embeddings", 131072}, {"sliding_window", 4096}});
  DecoderConfig facts = read_decoder_config(c);
  read_sliding_window(c, facts);
  facts.sliding.assign(facts.sliding.size(), facts.sliding_window > 0);
  facts.sliding = read_layer_types(c, facts.num_layers).value_or(facts.sliding);
  check_windows(facts);
  return facts;
}

}  // namespace trainer
