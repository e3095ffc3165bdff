// Granite 3 (IBM 2024): Llama with four multipliers. Granite 4 without experts and Mamba layers (2025),
// model_type granitemoehybrid: the same with other names, with or without a rotary embedding. Tested against
// transformers, models/granite and models/granitemoehybrid.
#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "models/decoder_config.h"

namespace trainer {

static DecoderConfig read_granite(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"max_position_embeddings", 2048},
                                                  {"embedding_multiplier", 1.0},
                                                  {"attention_multiplier", 1.0},
                                                  {"residual_multiplier", 1.0},
                                                  {"logits_scaling", 1.0}});
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.embedding_scale = config_positive(c, "embedding_multiplier");
  facts.attention_scale = config_positive(c, "attention_multiplier");
  facts.residual_scale = config_positive(c, "residual_multiplier");
  facts.logit_scale = 1.0 / config_positive(c, "logits_scaling");
  return facts;
}

DecoderConfig granite_config(const nlohmann::json& config) {
  DecoderConfig facts = read_granite(config);
  facts.mlp_bias = config_bool(config, "mlp_bias", false);
  return facts;
}

// All layers must be attention. Without a list Transformers makes all of them Mamba layers.
static void check_layers(const nlohmann::json& c) {
  const char* key = c.contains("layers_block_type") ? "layers_block_type" : "layer_types";
  const nlohmann::json types = c.value(key, nlohmann::json());
  const auto is_attention = [](const nlohmann::json& type) {
    return type == "attention" || type == "full_attention";
  };
  if (types.is_array() && std::ranges::all_of(types, is_attention)) return;
  throw FormatError(concat("config.json: ", key,
                           ": only layers of type attention are supported for model_type ",
                           "granitemoehybrid, and this model has Mamba layers (Granite 4 H)"));
}

DecoderConfig granite_hybrid_config(const nlohmann::json& config) {
  nlohmann::json c = config;
  check_layers(c);
  if (const int64_t experts = config_int(c, "num_local_experts", 8); experts != 0) {
    throw FormatError(concat("config.json: num_local_experts: ", experts,
                             " is not supported: mixtures of experts are not; Granite 4 without them is"));
  }
  c.erase("layer_types");
  c["intermediate_size"] = config_size(c, "shared_intermediate_size", 1024);
  DecoderConfig facts = read_granite(c);
  facts.mlp = "shared_mlp";
  facts.fused_gate_up = "input_linear";
  facts.down_proj = "output_linear";
  const std::string positions = config_string(c, "position_embedding_type", "");
  facts.rotated.assign(facts.rotated.size(), positions == "rope");
  return facts;
}

}  // namespace trainer
