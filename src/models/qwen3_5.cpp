// Qwen3.5, 3.6 and 3.8 without experts: three of four layers are Gated DeltaNet, the fourth is attention with
// a gate on its output and a rotary embedding on a quarter of each head. Tested against transformers,
// models/qwen3_5.
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "base/text.h"
#include "models/gated_delta_net.h"

namespace trainer {

static std::unique_ptr<Mixer> make_qwen3_5_mixer(const DecoderConfig& c, size_t layer) {
  if (c.recurrent[layer]) return std::make_unique<GatedDeltaNet>(c);
  return make_attention(c, layer);
}

// Returns which layers are recurrent.
static std::vector<bool> recurrent_layers(const nlohmann::json& c, int64_t num_layers) {
  std::vector<bool> recurrent;
  if (!c.contains("layer_types") || c["layer_types"].is_null()) {
    const int64_t interval = config_size(c, "full_attention_interval");
    for (int64_t i = 0; i < num_layers; i++) recurrent.push_back((i + 1) % interval != 0);
    return recurrent;
  }
  const nlohmann::json& types = c["layer_types"];
  const auto is_known = [](const nlohmann::json& type) {
    return type == "linear_attention" || type == "full_attention";
  };
  if (!types.is_array() || std::ssize(types) != num_layers || !std::ranges::all_of(types, is_known)) {
    throw FormatError(concat(
        "config.json: layer_types: must be a list with linear_attention or full_attention ",
        "for each of the ", num_layers, " layers (num_hidden_layers), is ", one_line(types.dump(), 100)));
  }
  for (const nlohmann::json& type : types) recurrent.push_back(type == "linear_attention");
  return recurrent;
}

DecoderConfig qwen3_5_config(const nlohmann::json& config) {
  const nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 4},
                                                  {"head_dim", 256},
                                                  {"max_position_embeddings", 32768},
                                                  {"partial_rotary_factor", 0.25},
                                                  {"full_attention_interval", 4},
                                                  {"linear_conv_kernel_dim", 4},
                                                  {"linear_key_head_dim", 128},
                                                  {"linear_value_head_dim", 128},
                                                  {"linear_num_key_heads", 16},
                                                  {"linear_num_value_heads", 32}});
  DecoderConfig facts = read_decoder_config(c, RotaryWidth::partial);
  facts.norm.scale = NormScale::one_plus_weight;
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.qk_norm = true;
  facts.output_gate = true;
  facts.delta = {config_size(c, "linear_num_key_heads"), config_size(c, "linear_num_value_heads"),
                 config_size(c, "linear_key_head_dim"), config_size(c, "linear_value_head_dim")};
  facts.conv_width = config_size(c, "linear_conv_kernel_dim");
  if (facts.delta.value_heads % facts.delta.key_heads != 0) {
    throw FormatError(
        "config.json: linear_num_value_heads that is not a multiple of linear_num_key_heads is not "
        "supported");
  }
  if (facts.activation != Activation::silu)
    throw FormatError("config.json: hidden_act other than silu is not supported for this model_type");
  facts.recurrent = recurrent_layers(c, facts.num_layers);
  facts.mixer = make_qwen3_5_mixer;
  return facts;
}

}  // namespace trainer
