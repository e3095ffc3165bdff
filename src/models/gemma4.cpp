// The text models of Gemma 4 (2026) without experts. Full layers have wider heads than those with a window, a
// rotary embedding that turns a part of each head, and in 12B and 31B values from the projection of the keys.
// E2B and E4B have embeddings for each layer, and last layers that use the keys of earlier ones. Tested
// against transformers, models/gemma4 and models/gemma4_unified.
#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "base/text.h"
#include "models/decoder_config.h"

namespace trainer {
namespace {

using nlohmann::json;

const json kGemma4Ropes{
    {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
    {"full_attention",
     {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}}}};

[[noreturn]] void refuse_gemma4(const std::string& what) {
  throw FormatError(concat("config.json: ", what, " is not supported"));
}

// What E2B and E4B have.
void read_small_gemma4(const json& c, DecoderConfig& facts) {
  facts.per_layer_size = config_int(c, "hidden_size_per_layer_input", 0);
  if (facts.per_layer_size < 0) refuse_gemma4("hidden_size_per_layer_input below 0");
  if (facts.per_layer_size > 0) {
    facts.per_layer_vocab = config_size(c, "vocab_size_per_layer_input");
    if (facts.per_layer_vocab < facts.vocab_size)
      refuse_gemma4("vocab_size_per_layer_input below vocab_size");
  }
  facts.layers_sharing_keys = config_int(c, "num_kv_shared_layers", 0);
  if (facts.layers_sharing_keys < 0 || facts.layers_sharing_keys >= facts.num_layers)
    refuse_gemma4("num_kv_shared_layers that leaves no layer with keys of its own");
  facts.sharing_intermediate_size =
      facts.intermediate_size * (config_bool(c, "use_double_wide_mlp", false) ? 2 : 1);
  for (size_t i = 0; i < facts.sliding.size(); i++) {
    if (facts.sliding[facts.keys_of(i)] != facts.sliding[i])
      refuse_gemma4("num_kv_shared_layers where no earlier layer of the same type has keys");
  }
}

// Images see each other in both directions where the value is "vision"; texts are causal.
void check_directions(json& c) {
  const json value = c.value("use_bidirectional_attention", json());
  if (!value.is_null() && value != "vision" && value != false)
    refuse_gemma4(concat("use_bidirectional_attention: ", one_line(value.dump(), 60)));
  c.erase("use_bidirectional_attention");
}

// Reads the heads of one layer where per_layer_config has them, as Transformers saves them.
HeadShape heads_in(const json& layers, size_t layer, const HeadShape& usual) {
  const auto own = layers.find(std::to_string(layer));
  if (own == layers.end()) return usual;
  for (const auto& [key, value] : own->items()) {
    const bool is_empty = value.is_null() || value.empty();
    if (key != "head_dim" && key != "num_key_value_heads" && !is_empty)
      refuse_gemma4(concat("per_layer_config: ", key));
  }
  return {config_size(*own, "num_key_value_heads", usual.num_kv_heads),
          config_size(*own, "head_dim", usual.head_dim)};
}

// The heads of all layers of one kind; nullopt if there are none.
std::optional<HeadShape> heads_of_kind(const json& layers, const DecoderConfig& facts, bool sliding) {
  std::optional<HeadShape> all;
  for (size_t i = 0; i < facts.sliding.size(); i++) {
    if (facts.sliding[i] != sliding) continue;
    const HeadShape own = heads_in(layers, i, {facts.num_kv_heads, facts.head_dim});
    if (all && (own.head_dim != all->head_dim || own.num_kv_heads != all->num_kv_heads))
      refuse_gemma4("per_layer_config: heads that differ among layers of one type");
    all = own;
  }
  return all;
}

void read_heads(const json& c, DecoderConfig& facts) {
  HeadShape full{facts.num_kv_heads, config_size(c, "global_head_dim")};
  if (facts.full_keys_are_values)
    full.num_kv_heads = config_size(c, "num_global_key_value_heads", facts.num_kv_heads);
  if (c.contains("per_layer_config") && !c["per_layer_config"].is_null()) {
    const json& layers = c["per_layer_config"];
    if (!layers.is_object())
      throw FormatError(concat("config.json: per_layer_config: must be an object with settings by layer, is ",
                               one_line(layers.dump(), 100)));
    full = *heads_of_kind(layers, facts, /*sliding=*/false);  // the last layer is one
    if (const auto sliding = heads_of_kind(layers, facts, /*sliding=*/true)) {
      facts.num_kv_heads = sliding->num_kv_heads;
      facts.head_dim = sliding->head_dim;
    }
  }
  facts.full_heads = full;
  if (full.head_dim % 2 != 0 || facts.head_dim % 2 != 0) refuse_gemma4("an odd head_dim");
  if (facts.num_heads % full.num_kv_heads != 0 || facts.num_heads % facts.num_kv_heads != 0)
    refuse_gemma4("num_attention_heads that is not a multiple of the heads of keys and values");
}

// Settings of the rotary embedding are in rope_parameters by type of layer, and nowhere else.
json ropes_of(json& c) {
  json ropes = c.value("rope_parameters", json());
  if (ropes.is_null()) ropes = kGemma4Ropes;
  if (!c.value("rope_scaling", json()).is_null()) {
    throw FormatError(
        "config.json: rope_parameters: must have an entry for each type of layer (sliding_attention, "
        "full_attention)");
  }
  if (!c.value("rope_theta", json()).is_null())
    log::warning("config.json: rope_theta has no effect: Gemma 4 has rope_parameters for each type of layer");
  for (const char* type : {"sliding_attention", "full_attention"}) {
    if (!ropes.contains(type) || !ropes[type].is_object() || !ropes[type].contains("rope_theta"))
      throw FormatError(
          concat("config.json: rope_parameters.", type, ": must be an object with rope_type and rope_theta"));
    if (c.contains("partial_rotary_factor") && !ropes[type].contains("partial_rotary_factor"))
      ropes[type]["partial_rotary_factor"] = c["partial_rotary_factor"];
    // Of the other types Transformers turns whole heads.
    if (ropes[type].value("rope_type", json("default")) == "default")
      ropes[type].erase("partial_rotary_factor");
  }
  for (const char* key : {"rope_parameters", "rope_theta", "rope_scaling", "partial_rotary_factor"})
    c.erase(key);
  return ropes;
}

DecoderConfig read_gemma4(json c) {
  if (config_bool(c, "enable_moe_block", false)) refuse_gemma4("enable_moe_block: true (experts, 26B-A4B)");
  check_directions(c);
  const json ropes = ropes_of(c);
  c["query_pre_attn_scalar"] = 1;  // scores are not scaled
  DecoderConfig facts = read_gemma_config(c, 6);
  if (facts.sliding.back()) {
    log::warning("config.json: layer_types: the last layer is a full_attention one, as in Transformers");
    facts.sliding.back() = false;
  }
  facts.norm.scale = NormScale::weight;
  facts.qk_norm = facts.value_norm = facts.layer_scalar = true;
  facts.full_keys_are_values = config_bool(c, "attention_k_eq_v", false);
  read_heads(c, facts);
  read_small_gemma4(c, facts);
  facts.rope = rope_of_layer_type(ropes, "full_attention", facts.full_heads->head_dim, c);
  facts.sliding_rope = rope_of_layer_type(ropes, "sliding_attention", facts.head_dim, c);
  return facts;
}

const json kGemma4Defaults{{"num_key_value_heads", 4},
                           {"head_dim", 256},
                           {"global_head_dim", 512},
                           {"max_position_embeddings", 131072},
                           {"pad_token_id", 0},
                           {"tie_word_embeddings", true},
                           {"hidden_size_per_layer_input", 256},
                           {"vocab_size_per_layer_input", 262144},
                           {"sliding_window", 512}};

}  // namespace

DecoderConfig gemma4_config(const json& config) {
  return read_gemma4(with_defaults(config, kGemma4Defaults));
}

// 12B, whose images and sounds have no towers.
DecoderConfig gemma4_unified_config(const json& config) {
  json defaults = kGemma4Defaults;
  defaults.update(
      {{"hidden_size_per_layer_input", 0}, {"sliding_window", 1024}, {"max_position_embeddings", 262144}});
  json c = with_defaults(config, defaults);
  for (const char* key : {"hidden_size_per_layer_input", "enable_moe_block"})
    c[key] = defaults.value(key, json(false));
  return read_gemma4(c);
}

}  // namespace trainer
