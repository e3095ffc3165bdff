// SmolLM3: Llama with some layers that have no rotary embedding: every fourth, unless the file lists them.
// Tested against transformers, models/smollm3.
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

// Returns 1 for each layer with a rotary embedding.
static std::vector<bool> rotated_layers(const nlohmann::json& c, int64_t num_layers) {
  std::vector<bool> rotated;
  if (!c.contains("no_rope_layers") || c["no_rope_layers"].is_null()) {
    const int64_t interval = config_size(c, "no_rope_layer_interval");
    for (int64_t i = 0; i < num_layers; i++) rotated.push_back((i + 1) % interval != 0);
    return rotated;
  }
  const nlohmann::json& list = c["no_rope_layers"];
  if (!list.is_array() || static_cast<int64_t>(list.size()) < num_layers) {
    throw FormatError(
        concat("config.json: no_rope_layers: must have 0 or 1 for each of the ", num_layers, " layers"));
  }
  for (int64_t i = 0; i < num_layers; i++) rotated.push_back(list[static_cast<size_t>(i)] != 0);
  return rotated;
}

DecoderConfig smollm3_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 4},
                                                  {"max_position_embeddings", 32768},
                                                  {"no_rope_layer_interval", 4},
                                                  {"pad_token_id", 128004},
                                                  {"rope_theta", 2e6},
                                                  {"tie_word_embeddings", true}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.mlp_bias = config_bool(c, "mlp_bias", false);
  facts.rotated = rotated_layers(c, facts.num_layers);
  // The layers without a rotation are those that have the window.
  if (config_bool(c, "use_sliding_window", false)) read_sliding_window(c, facts);
  if (facts.sliding_window > 0) {
    facts.sliding = facts.rotated;
    facts.sliding.flip();
  }
  facts.sliding = read_layer_types(c, facts.num_layers).value_or(facts.sliding);
  check_windows(facts);
  return facts;
}

}  // namespace trainer
