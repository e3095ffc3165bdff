#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "formats/model_limits.h"
#include "models/t5.h"

namespace trainer {

// mT5 never scales and UMT5 always does, whatever their flags say.
static bool scales_outputs(const nlohmann::json& c) {
  if (c.at("model_type") != "t5") return c.at("model_type") == "umt5";
  return config_bool(c, "scale_decoder_outputs", config_bool(c, "tie_word_embeddings", true));
}

// The number of values in its matrices; in floating point, so that nothing overflows.
static double parameters_of(const T5Config& config) {
  const auto width = static_cast<double>(config.d_model);
  const double attention =
                   4 * width * static_cast<double>(config.num_heads) * static_cast<double>(config.d_kv),
               feed_forward = 3 * width * static_cast<double>(config.d_ff),
               encoder = static_cast<double>(config.encoder_layers) * (attention + feed_forward),
               decoder = static_cast<double>(config.decoder_layers) * (2 * attention + feed_forward);
  return encoder + decoder + 2 * width * static_cast<double>(config.vocab_size);
}

T5Config::T5Config(const nlohmann::json& c)
    : vocab_size(config_size(c, "vocab_size")),
      d_model(config_size(c, "d_model")),
      d_kv(config_size(c, "d_kv")),
      d_ff(config_size(c, "d_ff")),
      num_heads(config_size(c, "num_heads")),
      encoder_layers(config_size(c, "num_layers")),
      decoder_layers(config_size(c, "num_decoder_layers", encoder_layers)),
      num_buckets(config_size(c, "relative_attention_num_buckets", 32)),
      max_distance(config_size(c, "relative_attention_max_distance", 128)),
      pad_id(config_int(c, "pad_token_id", 0)),
      decoder_start_id(config_int(c, "decoder_start_token_id", pad_id)),
      epsilon(config_double(c, "layer_norm_epsilon", 1e-6)),
      dropout(config_double(c, "dropout_rate", 0.1)),
      scale_outputs(scales_outputs(c)),
      bias_in_every_block(c.at("model_type") == "umt5") {
  std::string name =
      config_string(c, "feed_forward_proj", c.at("model_type") == "t5" ? "relu" : "gated-gelu");
  gated = name.starts_with("gated-");
  if (gated) name = name.substr(6);
  // "gated-gelu" has always meant the tanh approximation; plain "gelu" means the exact function
  if (gated && name == "gelu") name = "gelu_new";
  // Files may also contain the keys that transformers derives from feed_forward_proj; those take precedence.
  gated = config_bool(c, "is_gated_act", gated);
  name = config_string(c, "dense_act_fn", name);
  activation = activation_named(name, c.contains("dense_act_fn") ? "dense_act_fn" : "feed_forward_proj");
  check_token_ids(c, vocab_size);
  if (pad_id < 0 || decoder_start_id < 0) {
    throw FormatError(concat("config.json: ", pad_id < 0 ? "pad_token_id" : "decoder_start_token_id",
                             ": must be a token of the vocabulary, is ", std::min(pad_id, decoder_start_id)));
  }
  check_total_size(parameters_of(*this));
  if (num_buckets < 4 || max_distance <= num_buckets / 2) {
    throw FormatError(concat("config.json: relative_attention_num_buckets ", num_buckets,
                             " with relative_attention_max_distance ", max_distance, " is not supported"));
  }
}

}  // namespace trainer
