#include "models/decoder_config.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

namespace trainer {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw FormatError(concat("config.json: ", what, " is not supported for this model_type"));
}

// What would change the mathematics and is not built is refused, never ignored.
void check(const nlohmann::json& c, const DecoderConfig& facts) {
  if (facts.head_dim % 2 != 0) refuse("an odd head_dim");
  if (facts.num_heads % facts.num_kv_heads != 0)
    refuse("num_attention_heads that is no multiple of num_key_value_heads");
  if (config_bool(c, "use_sliding_window", false)) refuse("use_sliding_window: true");
  if (config_double(c, "attention_dropout", 0.0) != 0.0) refuse("attention_dropout other than 0");
  if (config_double(c, "partial_rotary_factor", 1.0) != 1.0) refuse("partial_rotary_factor other than 1");
  if (c.contains("layer_types") && c["layer_types"].is_array()) {
    for (const auto& layer : c["layer_types"]) {
      if (layer != "full_attention") refuse("layer_types entry " + layer.dump());
    }
  }
}

}  // namespace

DecoderConfig read_decoder_config(const nlohmann::json& c) {
  DecoderConfig facts;
  facts.vocab_size = config_size(c, "vocab_size");
  facts.hidden_size = config_size(c, "hidden_size");
  facts.intermediate_size = config_size(c, "intermediate_size");
  facts.num_layers = config_size(c, "num_hidden_layers");
  facts.num_heads = config_size(c, "num_attention_heads");
  facts.num_kv_heads = config_size(c, "num_key_value_heads", facts.num_heads);
  facts.head_dim = config_size(c, "head_dim", facts.hidden_size / facts.num_heads);
  facts.pad_id = config_int(c, "pad_token_id", 0);
  facts.rms_norm_eps = config_double(c, "rms_norm_eps", 1e-6);
  facts.activation = activation_named(config_string(c, "hidden_act", "silu"), "hidden_act");
  facts.rope = rope_parameters(c, facts.head_dim);
  facts.tied = config_bool(c, "tie_word_embeddings", false);
  check(c, facts);
  return facts;
}

}  // namespace trainer
