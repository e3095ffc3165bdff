#include "models/decoder_config.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "formats/model_limits.h"

namespace trainer {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw FormatError(concat("config.json: ", what, " is not supported for this model_type"));
}

bool is_set(const nlohmann::json& c, const char* key) { return c.contains(key) && !c[key].is_null(); }

// Reads pad_token_id as torch.nn.Embedding does: the original Llama's -1 is the last row.
int64_t padding_idx(const nlohmann::json& c, int64_t vocab_size) {
  if (!c.contains("pad_token_id") || c["pad_token_id"].is_null()) return -1;
  const int64_t id = config_int(c, "pad_token_id");
  if (id < -vocab_size || id >= vocab_size) refuse(concat("pad_token_id ", id, " outside the vocabulary"));
  return id < 0 ? id + vocab_size : id;
}

// The number of values in its matrices; in floating point, so that nothing overflows.
double parameters_of(const DecoderConfig& facts) {
  const auto hidden = static_cast<double>(facts.hidden_size), width = static_cast<double>(facts.head_dim),
             heads = static_cast<double>(2 * facts.num_heads + 2 * facts.num_kv_heads);
  const double block = hidden * (heads * width + 3 * static_cast<double>(facts.intermediate_size));
  return static_cast<double>(facts.num_layers) * block + 2 * hidden * static_cast<double>(facts.vocab_size);
}

// A setting that would change the mathematics and is not implemented is refused, never ignored.
void check(const nlohmann::json& c, const DecoderConfig& facts) {
  if (facts.head_dim % 2 != 0) refuse("an odd head_dim");
  if (facts.num_heads % facts.num_kv_heads != 0)
    refuse("num_attention_heads that is not a multiple of num_key_value_heads");
  if (config_double(c, "attention_dropout", 0.0) != 0.0) refuse("attention_dropout other than 0");
  if (is_set(c, "rope_parameters")) refuse("rope_parameters: one for each type of layer");
  if (!config_bool(c, "is_causal", true)) refuse("is_causal: false");
  if (config_bool(c, "use_bidirectional_attention", false)) refuse("use_bidirectional_attention: true");
}

double rotated_share(const nlohmann::json& c) {
  const double share = config_double(c, "partial_rotary_factor", 1.0);
  const bool scaled = c.contains("rope_scaling") && c["rope_scaling"].is_object();
  return scaled ? config_double(c["rope_scaling"], "partial_rotary_factor", share) : share;
}

int64_t partial_rotary_dim(const nlohmann::json& c, int64_t head_dim) {
  const double share = rotated_share(c);
  const auto width = static_cast<int64_t>(static_cast<double>(head_dim) * std::clamp(share, 0.0, 2.0));
  if (width < 2 || width > head_dim || width % 2 != 0)
    refuse(concat("partial_rotary_factor ", share, ", which rotates ", width, " of ", head_dim,
                  " dimensions of a head (an even number is needed)"));
  return width;
}

// For these families Transformers always rotates whole heads. The key has no effect with the standard
// embedding, and with the other types Transformers fails.
void check_partial_rotary(const nlohmann::json& c, const DecoderConfig& facts) {
  const double share = rotated_share(c);
  if (share == 1.0) return;
  if (facts.rope.type != RopeType::standard) refuse("partial_rotary_factor other than 1 with this rope type");
  log::warning(concat("config.json: partial_rotary_factor ", share, " has no effect, as in Transformers: ",
                      "model_type ", c.at("model_type").get<std::string>(), " rotates whole heads"));
}

}  // namespace

size_t DecoderConfig::keys_of(size_t layer) const {
  if (!shares_keys(layer)) return layer;
  size_t own = first_sharing() - 1;
  while (own > 0 && sliding[own] != sliding[layer]) own--;
  return own;
}

bool DecoderConfig::stores_keys(size_t layer) const {
  for (size_t i = first_sharing(); i < static_cast<size_t>(num_layers); i++)
    if (keys_of(i) == layer) return true;
  return false;
}

double config_positive(const nlohmann::json& config, const char* key) {
  const double value = config_double(config, key, 0.0);
  if (value <= 0) throw FormatError(concat("config.json: ", key, ": must be a number above 0, is ", value));
  return value;
}

nlohmann::json with_defaults(const nlohmann::json& config, nlohmann::json defaults) {
  defaults.update(config);
  return defaults;
}

DecoderConfig read_decoder_config(const nlohmann::json& c, RotaryWidth rotary_width) {
  const bool partial = rotary_width == RotaryWidth::partial;
  DecoderConfig facts;
  facts.vocab_size = config_size(c, "vocab_size");
  facts.hidden_size = config_size(c, "hidden_size");
  facts.intermediate_size = config_size(c, "intermediate_size");
  facts.num_layers = config_size(c, "num_hidden_layers");
  facts.num_heads = config_size(c, "num_attention_heads");
  facts.num_kv_heads = config_size(c, "num_key_value_heads", facts.num_heads);
  facts.head_dim = config_size(c, "head_dim", std::max<int64_t>(facts.hidden_size / facts.num_heads, 1));
  check_token_ids(c, facts.vocab_size);
  check_total_size(parameters_of(facts));
  facts.padding_idx = padding_idx(c, facts.vocab_size);
  facts.norm.epsilon = config_double(c, "rms_norm_eps", 1e-6);
  facts.activation = activation_named(config_string(c, "hidden_act", "silu"), "hidden_act");
  facts.rope = rope_parameters(c, partial ? partial_rotary_dim(c, facts.head_dim) : facts.head_dim);
  facts.attention_scale = 1.0 / std::sqrt(static_cast<double>(facts.head_dim));
  facts.tied = config_bool(c, "tie_word_embeddings", false);
  facts.sliding.assign(static_cast<size_t>(facts.num_layers), false);
  facts.rotated.assign(static_cast<size_t>(facts.num_layers), true);
  check(c, facts);
  if (!partial) check_partial_rotary(c, facts);
  return facts;
}

std::optional<std::vector<bool>> read_layer_types(const nlohmann::json& c, int64_t num_layers) {
  if (!c.contains("layer_types") || c["layer_types"].is_null()) return std::nullopt;
  const nlohmann::json& types = c["layer_types"];
  if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
    throw FormatError(concat("config.json: layer_types: must be a list with an entry for each of the ",
                             num_layers, " layers (num_hidden_layers), is ", one_line(types.dump(), 100)));
  }
  std::vector<bool> sliding;
  for (const nlohmann::json& type : types) {
    if (type != "full_attention" && type != "attention" && type != "sliding_attention")
      refuse(concat("layer_types entry ", type.dump()));
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

void read_sliding_window(const nlohmann::json& c, DecoderConfig& facts) {
  if (c.contains("sliding_window") && !c["sliding_window"].is_null())
    facts.sliding_window = config_size(c, "sliding_window");
}

void check_windows(const DecoderConfig& facts) {
  if (facts.sliding_window == 0 && std::ranges::find(facts.sliding, true) != facts.sliding.end())
    refuse("layer_types entry sliding_attention without a window (use_sliding_window, sliding_window)");
}

void read_qwen_windows(const nlohmann::json& c, DecoderConfig& facts) {
  if (config_bool(c, "use_sliding_window", false)) read_sliding_window(c, facts);
  if (const auto types = read_layer_types(c, facts.num_layers)) {
    facts.sliding = *types;
    check_windows(facts);
  } else if (facts.sliding_window > 0) {
    const int64_t first = config_int(c, "max_window_layers", 28);
    for (int64_t i = std::max<int64_t>(first, 0); i < facts.num_layers; i++)
      facts.sliding[static_cast<size_t>(i)] = true;
  }
}

RopeParameters rope_of_layer_type(const nlohmann::json& ropes, const char* layer_type, int64_t head_dim,
                                  nlohmann::json flat) {
  if (ropes.contains(layer_type) && ropes[layer_type].is_object()) {
    const nlohmann::json& own = ropes[layer_type];
    if (config_string(own, "rope_type", "default") == "proportional")
      return proportional_rope(own, head_dim, config_double(flat, "rope_theta", 10000.0));
    if (config_double(own, "partial_rotary_factor", 1.0) != 1.0) {
      throw FormatError(concat("config.json: rope_parameters.", layer_type,
                               ": partial_rotary_factor other than 1 is not supported"));
    }
    flat["rope_scaling"] = own;
  }
  return rope_parameters(flat, head_dim);
}

DecoderConfig read_gemma_config(nlohmann::json c, int64_t pattern) {
  c["hidden_act"] = config_string(c, "hidden_activation", "gelu_pytorch_tanh");
  DecoderConfig facts = read_decoder_config(c);
  facts.qkv_bias = facts.output_bias = config_bool(c, "attention_bias", false);
  facts.rounded_embedding_scale = true;  // Gemma3TextScaledWordEmbedding
  facts.embedding_scale = std::sqrt(static_cast<double>(facts.hidden_size));
  facts.norm.scale = NormScale::one_plus_weight;
  facts.layer_norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                       "post_feedforward_layernorm"};
  facts.attention_scale = 1.0 / std::sqrt(config_positive(c, "query_pre_attn_scalar"));
  if (is_set(c, "final_logit_softcapping"))
    facts.logit_soft_cap = config_positive(c, "final_logit_softcapping");
  read_sliding_window(c, facts);
  for (int64_t i = 0; i < facts.num_layers; i++)
    facts.sliding[static_cast<size_t>(i)] = (i + 1) % pattern != 0;
  facts.sliding = read_layer_types(c, facts.num_layers).value_or(facts.sliding);
  check_windows(facts);
  return facts;
}

}  // namespace trainer
